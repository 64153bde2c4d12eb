//! A git repository over smart HTTP, in version 2 of its protocol: which commit a reference names, whether that comes after
//! the one known, and the files of one folder of it. No clone is kept: a look asks for one commit without its history.

mod delta;
mod history;
mod object;
mod pack;
mod pkt_line;
mod protocol;
mod tree;

use std::sync::Arc;

use bytes::Bytes;
use dhow_core::state::RemoteSource;

use super::error::RemoteError;
use super::http::RemoteHttp;
use super::{Known, Read};
use object::ObjectId;
use pack::Pack;
use protocol::{Server, Want};

pub(super) async fn read(
    http: &RemoteHttp,
    remote: &RemoteSource,
    known: &Known,
) -> Result<Read, RemoteError> {
    let server = Server::greet(http).await?;
    let tip = server.find(&remote.reference).await?;
    let commit: Arc<str> = tip.to_string().into();
    if known.looked_at.as_ref() == Some(&commit) {
        return Ok(Read::Unchanged);
    }
    let before = known.commit.as_deref().and_then(ObjectId::from_text);
    let rewritten = match before.filter(|before| *before != tip) {
        Some(before) => history::why_not_after(&server, tip, before).await?,
        None => None,
    };
    let pack = unpacked(server.fetch(&Want::snapshot(tip)).await?, Pack::default()).await?;
    let files = tree::files_of(&pack, tip, &remote.path)?;
    let missing: Vec<ObjectId> = files.missing(&pack);
    let pack = match missing.is_empty() {
        true => pack,
        false => unpacked(server.fetch(&Want::objects(missing)).await?, pack).await?,
    };
    Ok(Read::Set {
        set: files.read(&pack)?,
        commit: Some(commit),
        rewritten,
    })
}

/// Unpacking is work for a thread of its own.
async fn unpacked(bytes: Bytes, mut into: Pack) -> Result<Pack, RemoteError> {
    let unpacking = tokio::task::spawn_blocking(move || into.add(&bytes).map(|()| into));
    unpacking.await.map_err(|_| RemoteError::CutOff)?
}
