//! Why something could not be done with a volume.

use std::io;
use std::path::{Path, PathBuf};

use crate::image::{EntryRefusal, LimitKind, UnpackError};

/// Why a volume could not be made, filled, copied or put back.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("{doing} {}", path.display())]
    File {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the file system of {} cannot hold a volume to a size: it has no project quotas (mount it with `prjquota`)",
        path.display()
    )]
    NoSizes {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("there is no volume `{0}` here")]
    NotHere(String),
    #[error("the volume is used by {}: stop its services first, by `dhow stop`", users.join(", "))]
    InUse { users: Vec<String> },
    #[error("`{0}` is no name of a volume")]
    BadName(String),
    #[error("the archive's entry `{entry}` {why}; the volume is as it was")]
    Entry { entry: String, why: EntryRefusal },
    #[error("the archive has more than {limit} {kind}; the volume is as it was")]
    TooLarge { kind: LimitKind, limit: u64 },
    #[error("the archive ends before its end mark: it is not whole, and the volume is as it was")]
    CutOff,
    #[error("the archive cannot be unpacked; the volume is as it was")]
    Unpack(#[source] UnpackError),
    #[error("the archive cannot be written")]
    Write(#[source] io::Error),
}

impl VolumeError {
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }
}

impl From<UnpackError> for VolumeError {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Refused { entry, why } => Self::Entry { entry, why },
            UnpackError::TooLarge { kind, limit } => Self::TooLarge { kind, limit },
            other => Self::Unpack(other),
        }
    }
}
