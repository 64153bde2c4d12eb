//! The index of a set: which files belong to it, byte for byte.

use serde::{Deserialize, Serialize};

use super::error::ManifestError;
use super::received::{INDEX_NAME, SIGNATURE_NAME};
use crate::hex::hex_bytes;

/// A thousand entries of a path (255), a hash (64) and their JSON around them (about 60) are below 400 KB.
pub const INDEX_BYTES_MAX: usize = 512 * 1024;
/// The longest path of a file in a set.
const PATH_CHARS_MAX: usize = 255;

hex_bytes! {
    /// BLAKE3 of a file's bytes.
    FileHash, 32
}

impl FileHash {
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).into())
    }
}

/// The signed list of a set's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestIndex {
    /// Counts the sets: a newer one has a higher number.
    pub version: u64,
    pub created_unix_secs: i64,
    pub files: Vec<ManifestFile>,
}

/// One file of a set, by its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestFile {
    /// Relative to the index, parts joined by `/`.
    pub path: String,
    pub blake3: FileHash,
    pub size_bytes: u64,
}

/// Whether a path is plain: parts of letters, digits, `.`, `_` and `-` that do not start with a dot. So it can
/// leave its directory by no trick, on no system.
pub(super) fn check_path(path: &str) -> Result<(), ManifestError> {
    let is_plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    if path.len() > PATH_CHARS_MAX || !path.split('/').all(is_plain) {
        let path = path.chars().take(PATH_CHARS_MAX).collect();
        return Err(ManifestError::BadPath { path });
    }
    if path == INDEX_NAME || path == SIGNATURE_NAME {
        return Err(ManifestError::ReservedPath { path: path.into() });
    }
    Ok(())
}
