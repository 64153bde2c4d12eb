//! Why an image is not there, in one sentence that names the image and where it was to come from. What lies
//! underneath is the error's source and is not repeated.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::digest::Digest;
use super::manifest::{ManifestError, Platform};
use super::origin::Origin;
use super::reference::{ImageRef, ReferenceError};
use super::store::StoreError;
use super::unpack::UnpackError;

/// A cause that several waiters of one pull share.
pub type SharedCause = Arc<dyn std::error::Error + Send + Sync>;

/// Everything that resolving, pulling, importing, listing and removing can end with.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("the image {image} does not exist in {origin}; check its name and tag")]
    NotFound { image: String, origin: Origin },
    #[error("the {origin} for the image {image} {trouble}")]
    Unreachable {
        image: String,
        origin: Origin,
        trouble: RegistryTrouble,
        #[source]
        source: SharedCause,
    },
    #[error("the {origin} answered {status} for the image {image}, {attempts} times; try again later")]
    RegistryFailed {
        image: String,
        origin: Origin,
        status: u16,
        attempts: u32,
    },
    #[error("the {origin} answered the request for the image {image} in a way that cannot be used: {detail}")]
    BadAnswer {
        image: String,
        origin: Origin,
        detail: String,
    },
    #[error("the {origin} refuses the image {image}: {hint}")]
    Unauthorised {
        image: String,
        origin: Origin,
        hint: &'static str,
    },
    #[error(
        "{what} of the image {image} from {origin} has the digest {found} and should have {expected}; \
         the data is damaged or was tampered with and was not used"
    )]
    WrongDigest {
        image: String,
        origin: Origin,
        what: &'static str,
        expected: Box<Digest>,
        found: Box<Digest>,
    },
    #[error(
        "{what} of the image {image} from {origin} has {found_bytes} bytes and should have {expected_bytes}; it was not used"
    )]
    WrongSize {
        image: String,
        origin: Origin,
        what: &'static str,
        expected_bytes: u64,
        found_bytes: u64,
    },
    #[error("the image {image} from {origin} is not offered for {wanted}; it is for {}", list(.offered))]
    NoPlatform {
        image: String,
        origin: Origin,
        wanted: Box<Platform>,
        offered: Vec<Platform>,
    },
    #[error("the image {image} from {origin} cannot be used")]
    BadManifest {
        image: String,
        origin: Origin,
        #[source]
        source: ManifestError,
    },
    #[error("the {origin} cannot be used for the image {image}: {detail}")]
    BadSource {
        image: String,
        origin: Origin,
        detail: String,
    },
    #[error("the layer {} of the image {image} cannot be unpacked", .layer.short())]
    BadLayer {
        image: String,
        layer: Digest,
        #[source]
        source: UnpackError,
    },
    #[error("the image {image} was not unpacked: this needs root, as containers do")]
    NotRoot { image: String },
    #[error(
        "no space is left on the disk of {path} for the image {image}; free some (`dhow image prune` removes \
         unused images) and try again"
    )]
    DiskFull { image: String, path: PathBuf },
    #[error(
        "the image {image} does not fit the disk of {path}: it needs at least {needed_bytes} bytes more and \
         {spare_bytes} are to spare for images; free some (`dhow image prune` removes unused images) and try again"
    )]
    NoRoom {
        image: String,
        path: PathBuf,
        needed_bytes: u64,
        spare_bytes: u64,
    },
    #[error("the image store has a problem with the image {image}")]
    Store {
        image: String,
        #[source]
        source: StoreError,
    },
    #[error("the image store at {path} cannot be opened")]
    Open {
        path: PathBuf,
        #[source]
        source: StoreError,
    },
    #[error("the image store cannot be read")]
    Catalogue(#[source] StoreError),
    #[error("the image {image} is in use and stays; remove the deployments that use it first")]
    InUse { image: String },
    #[error("there is no image {image} on this node; `dhow image ls` shows those that are")]
    NotHere { image: String },
    #[error("{path}, which holds the credentials for registries, cannot be used: {detail}")]
    Credentials { path: PathBuf, detail: String },
    #[error("the certificate file {path} cannot be used: {detail}")]
    Certificate { path: PathBuf, detail: String },
    #[error("the connection to registries cannot be set up: {detail}")]
    Setup { detail: String },
    #[error("the pull of the image {image} was cancelled")]
    Cancelled { image: String },
}

/// Why a registry cannot be spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryTrouble {
    Refused,
    UnknownHost,
    TimedOut,
    Untrusted,
    Broken,
}

impl fmt::Display for RegistryTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused the connection; is it running, and is the port right?",
            Self::UnknownHost => "has a host name that cannot be resolved; check its spelling and this node's DNS",
            Self::TimedOut => "did not answer in time; check the network between this node and it",
            Self::Untrusted => {
                "could not be verified by its certificate; add its authority to those that this host trusts (only a \
                 registry on loopback may do without)"
            }
            Self::Broken => "broke the connection again and again",
        })
    }
}

fn list(platforms: &[Platform]) -> String {
    if platforms.is_empty() {
        return "no platform that it names".to_owned();
    }
    let texts: Vec<_> = platforms.iter().map(Platform::to_string).collect();
    texts.join(", ")
}

/// What an error is about; makes the errors of one image.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub image: String,
    pub origin: Origin,
}

impl Subject {
    pub fn of(reference: &ImageRef) -> Self {
        Self {
            image: reference.familiar(),
            origin: reference.origin(),
        }
    }

    pub fn store(&self, error: StoreError) -> ImageError {
        let image = self.image.clone();
        match error {
            StoreError::DiskFull { path } => ImageError::DiskFull { image, path },
            StoreError::NoRoom {
                path,
                needed_bytes,
                spare_bytes,
            } => ImageError::NoRoom {
                image,
                path,
                needed_bytes,
                spare_bytes,
            },
            source @ (StoreError::Io { .. } | StoreError::Damaged { .. } | StoreError::NoFiles { .. }) => {
                ImageError::Store { image, source }
            }
        }
    }

    pub fn layer(&self, layer: Digest, error: UnpackError) -> ImageError {
        let image = self.image.clone();
        match error {
            UnpackError::Store(error) => self.store(error),
            UnpackError::NotRoot => ImageError::NotRoot { image },
            UnpackError::Cancelled => ImageError::Cancelled { image },
            source @ (UnpackError::Refused { .. }
            | UnpackError::TooLarge { .. }
            | UnpackError::Malformed { .. }
            | UnpackError::Read { .. }
            | UnpackError::WrongDiffId { .. }
            | UnpackError::Entry { .. }) => ImageError::BadLayer { image, layer, source },
        }
    }

    pub fn manifest(&self, source: ManifestError) -> ImageError {
        ImageError::BadManifest {
            image: self.image.clone(),
            origin: self.origin.clone(),
            source,
        }
    }

    pub fn not_found(&self) -> ImageError {
        ImageError::NotFound {
            image: self.image.clone(),
            origin: self.origin.clone(),
        }
    }

    pub fn bad_answer(&self, detail: impl Into<String>) -> ImageError {
        ImageError::BadAnswer {
            image: self.image.clone(),
            origin: self.origin.clone(),
            detail: detail.into(),
        }
    }

    pub fn bad_source(&self, detail: impl Into<String>) -> ImageError {
        ImageError::BadSource {
            image: self.image.clone(),
            origin: self.origin.clone(),
            detail: detail.into(),
        }
    }

    pub fn wrong_digest(&self, what: &'static str, expected: Digest, found: Digest) -> ImageError {
        ImageError::WrongDigest {
            image: self.image.clone(),
            origin: self.origin.clone(),
            what,
            expected: Box::new(expected),
            found: Box::new(found),
        }
    }

    pub fn wrong_size(&self, what: &'static str, expected_bytes: u64, found_bytes: u64) -> ImageError {
        ImageError::WrongSize {
            image: self.image.clone(),
            origin: self.origin.clone(),
            what,
            expected_bytes,
            found_bytes,
        }
    }

    /// A file of a local source that cannot be read.
    pub fn unreadable(&self, path: &std::path::Path, error: io::Error) -> ImageError {
        if error.kind() == io::ErrorKind::NotFound {
            return self.bad_source(format!("{} does not exist on this node", path.display()));
        }
        let source = StoreError::io("read", path, error);
        self.store(source)
    }

    /// A blocking task that was ended from outside, which happens when the runtime shuts down.
    pub fn cancelled(&self) -> ImageError {
        ImageError::Cancelled {
            image: self.image.clone(),
        }
    }
}
