//! The signing side, for tools that publish sets.

use std::collections::BTreeMap;

use ed25519_dalek::SigningKey;

use super::error::{IndexReadError, ManifestError};
use super::index::{FileHash, ManifestFile, ManifestIndex, check_path};
use super::received::ReceivedSet;
use crate::hex;
use crate::signing::Domain;

/// Makes the index of these files, by path, and signs it. What comes out is to be written as it is.
pub(super) fn sign_set(
    key: &SigningKey,
    version: u64,
    created_unix_secs: i64,
    files: BTreeMap<String, Vec<u8>>,
) -> Result<ReceivedSet, ManifestError> {
    let mut listed = Vec::with_capacity(files.len());
    for (path, bytes) in &files {
        check_path(path)?;
        listed.push(ManifestFile {
            path: path.clone(),
            blake3: FileHash::of(bytes),
            size_bytes: bytes.len() as u64,
        });
    }
    let index = ManifestIndex {
        version,
        created_unix_secs,
        files: listed,
    };
    let index = serde_json::to_vec_pretty(&index).map_err(|error| {
        let cause = IndexReadError(error.to_string());
        ManifestError::MalformedIndex { cause }
    })?;
    let signature = Domain::ManifestIndex.sign(key, &[&index]);
    let set = ReceivedSet {
        index,
        signature: format!("{}\n", hex::encode(&signature)).into_bytes(),
        files,
    };
    set.check_sizes()?;
    Ok(set)
}
