//! Why a layer cannot be unpacked, in words for the person who wants to run the image.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::image::digest::Digest;
use crate::image::store::StoreError;

/// A layer that was not unpacked; nothing of it stays.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UnpackError {
    #[error(
        "unpacking image layers needs root, as containers do; run the daemon as root, or use services with \
         `runtime: process`"
    )]
    NotRoot,
    #[error("the layer's entry `{entry}` {why}; the image was refused")]
    Refused { entry: String, why: EntryRefusal },
    #[error("the layer has more than {limit} {kind}; the image was refused")]
    TooLarge { kind: LimitKind, limit: u64 },
    #[error("the layer is damaged: {detail}")]
    Malformed { detail: String },
    #[error("the layer's data cannot be read")]
    Read {
        #[source]
        source: Arc<io::Error>,
    },
    #[error("the unpacked layer has the digest {found} and the image's configuration says {expected}")]
    WrongDiffId {
        expected: Box<Digest>,
        found: Box<Digest>,
    },
    #[error("could not {doing} `{entry}` of the layer")]
    Entry {
        doing: &'static str,
        entry: String,
        #[source]
        source: Arc<io::Error>,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the pull was cancelled")]
    Cancelled,
}

/// Why an entry of a layer is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryRefusal {
    AbsolutePath,
    ParentComponent,
    NulByte,
    PathTooLong,
    /// A parent is a symbolic link that leads out of the layer, or in circles.
    ThroughLink,
    ParentNotDirectory,
    HardLinkOutside,
    HardLinkMissing,
    HardLinkToDirectory,
    WhiteoutName,
    RootNotDirectory,
    OwnerOutOfRange,
    DeviceOutOfRange,
    UnknownType(u8),
    PaxSparse,
    /// Only layers of images have devices.
    Device,
}

impl fmt::Display for EntryRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::AbsolutePath => "has an absolute path",
            Self::ParentComponent => "climbs out with `..`",
            Self::NulByte => "has a NUL byte in a name",
            Self::PathTooLong => "has a path longer than the kernel takes",
            Self::ThroughLink => "leads through a symbolic link that points out of the folder",
            Self::ParentNotDirectory => "lies below something that is no directory",
            Self::HardLinkOutside => "is a hard link to something outside",
            Self::HardLinkMissing => "is a hard link to something that is not there",
            Self::HardLinkToDirectory => "is a hard link to a directory",
            Self::WhiteoutName => "is a whiteout of no proper name",
            Self::RootNotDirectory => "would replace the root directory",
            Self::OwnerOutOfRange => "has an owner that does not fit 32 bits",
            Self::DeviceOutOfRange => "has a device number out of range",
            Self::UnknownType(kind) => return write!(f, "has the unknown type {:?}", char::from(*kind)),
            Self::Device => "is a device",
            Self::PaxSparse => "is a sparse file in PAX form, which is not supported",
        };
        f.write_str(text)
    }
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    Entries,
    Bytes,
    ExtensionBytes,
    PathBytes,
    SparseParts,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Entries => "entries",
            Self::Bytes => "bytes when unpacked",
            Self::ExtensionBytes => "bytes in one extended header",
            Self::PathBytes => "bytes of directory names",
            Self::SparseParts => "parts in one sparse file",
        })
    }
}

impl UnpackError {
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::Malformed {
            detail: detail.into(),
        }
    }

    /// An error that reading the layer gave: our own ones travel inside of I/O errors.
    pub(super) fn reading(error: io::Error) -> Self {
        if let Some(own) = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            return own.clone();
        }
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::malformed("it ends in the middle of an entry");
        }
        Self::Read {
            source: Arc::new(error),
        }
    }
}
