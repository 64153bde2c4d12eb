//! What can go wrong with the store's own files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A failure of the host's file system, or of a file of the store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "no space is left on the disk of {path}; free some (`dhow image prune` removes unused images) and try again"
    )]
    DiskFull { path: PathBuf },
    #[error(
        "the disk of {path} has {spare_bytes} bytes to spare for images and {needed_bytes} are needed; free some \
         (`dhow image prune` removes unused images) and try again"
    )]
    NoRoom {
        path: PathBuf,
        needed_bytes: u64,
        spare_bytes: u64,
    },
    #[error(
        "the disk of {path} has {spare_files} files to spare for images and more are needed; remove some (`dhow image \
         prune` removes unused images) and try again"
    )]
    NoFiles { path: PathBuf, spare_files: u64 },
    #[error("could not {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: Arc<io::Error>,
    },
    #[error("{path} is damaged ({detail}); remove it and pull the image again")]
    Damaged { path: PathBuf, detail: String },
}

impl StoreError {
    /// Names the file and what was being done; a full disk is told apart.
    pub(crate) fn io(doing: &'static str, path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull {
                path: path.to_owned(),
            },
            _ => Self::Io {
                doing,
                path: path.to_owned(),
                source: Arc::new(error),
            },
        }
    }
}
