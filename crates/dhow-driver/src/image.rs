//! Container images: from a reference to a mounted root file system.
//!
//! The container driver calls it: [`Images`] resolves a reference to a digest, pulls or imports the image
//! into a content store, and [`Rootfs`] mounts it for one replica. Every byte that enters the store has been
//! checked against its digest, a layer is fetched and unpacked once however many images and replicas share
//! it, and a `kill -9` at any moment leaves nothing that a later open would mistake for complete.
//!
//! It must never run anything of an image, never write outside its store and the replica directories it is
//! given, and never hold one lock for all images.

mod clock;
mod config;
mod digest;
mod error;
mod images;
mod manifest;
mod origin;
mod progress;
mod prune;
mod pull;
mod reference;
mod registry;
mod room;
mod rootfs;
mod source;
mod store;
#[cfg(test)]
mod test_tar;
mod transfers;
mod unpack;
mod work;

pub use config::{ExposedPort, ImageConfig, PortProtocol};
pub use digest::{Digest, DigestError};
pub use error::{ImageError, RegistryTrouble, SharedCause};
pub use images::{Image, ImageSummary, Images, ImagesOptions, Imported, Pull};
pub use manifest::{ManifestError, Platform};
pub use origin::Origin;
pub use progress::{PullPhase, PullProgress};
pub use prune::{PruneOptions, PruneReport};
pub use reference::{ArchiveRef, ImageRef, LayoutRef, ReferenceError, RegistryRef};
pub use registry::{Login, LoginSource, Logins, RegistryOptions, RetryPolicy};
pub use rootfs::{Rootfs, RootfsError, RootfsOptions};
pub use store::StoreError;
pub(crate) use unpack::unpack_folder;
pub use unpack::{EntryRefusal, LimitKind, Privilege, UnpackError, UnpackLimits};
