//! A set below an address: its index, its signature, and the files that the index names. The index is not proved yet when
//! its files are asked for; whoever wrote it gets requests for files below the same address, and nothing else.

use std::collections::BTreeMap;

use dhow_wire::manifest::{
    FILE_BYTES_MAX, FILES_MAX, FileHash, INDEX_BYTES_MAX, INDEX_NAME, ReceivedSet, SET_BYTES_MAX,
    SIGNATURE_NAME, SIGNATURE_TEXT_BYTES_MAX,
};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::error::RemoteError;
use super::http::{Ask, RemoteHttp};
use super::{Known, Read};

/// Files that are asked for at a time.
const AT_A_TIME: usize = 8;

pub(super) async fn read(http: &RemoteHttp, known: &Known) -> Result<Read, RemoteError> {
    // One byte more than the limit, so that the judgement names what is too large.
    let signature = http
        .ask(Ask::get(SIGNATURE_NAME, SIGNATURE_TEXT_BYTES_MAX + 1))
        .await?;
    let index = http.ask(Ask::get(INDEX_NAME, INDEX_BYTES_MAX + 1)).await?;
    let mut set = ReceivedSet {
        index: index.to_vec(),
        signature: signature.to_vec(),
        files: BTreeMap::new(),
    };
    let is_known = known.index_hash == Some(*FileHash::of(&set.index).as_bytes());
    if !is_known {
        set.files = files(http, &set).await?;
    }
    Ok(Read::Set {
        set,
        commit: None,
        rewritten: None,
    })
}

/// What cannot be read of the index, or is named in a way that it may not be, is for the judgement to say.
async fn files(http: &RemoteHttp, set: &ReceivedSet) -> Result<BTreeMap<String, Vec<u8>>, RemoteError> {
    let paths: Vec<(String, u64)> = set.listed().unwrap_or_default();
    let all: u64 = paths.iter().map(|(_, size)| *size).fold(0, u64::saturating_add);
    if paths.len() > FILES_MAX || all > SET_BYTES_MAX || paths.iter().any(|(_, size)| *size > FILE_BYTES_MAX)
    {
        return Err(RemoteError::SetTooLarge);
    }
    let fetched = stream::iter(paths).map(|(path, size)| async move {
        // A file that is longer than the index says is cut one byte behind that, and so is seen to be another.
        let max_bytes = usize::try_from(size).unwrap_or(usize::MAX).saturating_add(1);
        let bytes = http.ask(Ask::get(&path, max_bytes)).await?;
        Ok::<_, RemoteError>((path.clone(), bytes.to_vec()))
    });
    fetched.buffer_unordered(AT_A_TIME).try_collect().await
}
