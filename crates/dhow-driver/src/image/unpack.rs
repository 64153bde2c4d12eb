//! Unpacking one layer into a directory that overlayfs can stack.
//!
//! Called by the pull on a blocking thread, with bytes that a stranger made. Every path is resolved by the
//! kernel beneath the layer's root, so nothing outside can be written, linked to or removed; sizes and counts
//! have named limits; the digest of the whole uncompressed stream is checked before the layer counts as
//! unpacked. Whiteouts become what overlayfs understands.
//!
//! As root owners, devices and trusted attributes are kept. Without root a layer is refused
//! ([`UnpackError::NotRoot`]), since no container could run from it, unless the store was opened with
//! [`Privilege::BestEffort`]: then owners and devices are left out, which is enough to look into images.

mod error;
mod layer_input;
mod limits;
mod measured;
mod pax;
mod tar_path;
mod tar_reader;
#[cfg(test)]
mod tests;
mod tree;
mod writer;

use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
pub use error::{EntryRefusal, LimitKind, UnpackError};
pub(crate) use layer_input::{Decompressed, LayerInput};
pub use limits::UnpackLimits;
use measured::Measured;
use tar_reader::TarReader;
pub(crate) use tree::is_opaque;
use writer::LayerWriter;

/// The form of `layer.json`; raised when it changes.
const META_VERSION: u32 = 1;

/// What the process may do on this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privilege {
    /// Everything of a layer is kept; needs root.
    #[default]
    Root,
    /// Owners and devices are left out; such layers cannot be mounted for containers.
    BestEffort,
}

impl Privilege {
    /// An error where root is needed and the process has none.
    pub(crate) fn check(self) -> Result<(), UnpackError> {
        match self {
            Self::Root if !rustix::process::geteuid().is_root() => Err(UnpackError::NotRoot),
            Self::Root | Self::BestEffort => Ok(()),
        }
    }
}

/// What is known of an unpacked layer, kept beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerMeta {
    pub version: u32,
    pub entries: u64,
    /// The sum of the files' sizes.
    pub size_bytes: u64,
    /// The layer hides everything below it.
    pub opaque_root: bool,
    /// The root's attributes, if the layer has an entry for it.
    pub root: Option<DirAttributes>,
    /// Directories that were made only because something lies below them: the layer says nothing of their
    /// attributes, so those of the layers underneath hold.
    pub implied_dirs: Vec<String>,
}

/// The attributes of a directory that can differ between layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirAttributes {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// What an archive becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A layer, in which some names mean that something is deleted.
    Layer,
    /// A folder that has what the archive has, and no devices.
    Folder,
}

/// How one layer is to be unpacked.
pub(crate) struct UnpackJob<'a> {
    pub limits: &'a UnpackLimits,
    pub privilege: Privilege,
    /// What the image's configuration says the uncompressed layer hashes to.
    pub diff_id: Digest,
    /// Set by whoever no longer wants the layer.
    pub cancelled: &'a AtomicBool,
}

/// Unpacks a layer into an empty directory.
pub(crate) fn unpack(
    input: LayerInput,
    target: &Path,
    job: &UnpackJob<'_>,
) -> Result<LayerMeta, UnpackError> {
    job.privilege.check()?;
    let stream = Decompressed::new(input).map_err(UnpackError::reading)?;
    let measured = Measured::new(stream, job.limits.max_layer_bytes, job.cancelled);
    let mut archive = TarReader::new(measured);
    let mut writer = LayerWriter::open(target, job, Purpose::Layer)?;
    while let Some(entry) = archive.next_entry()? {
        writer.apply(&entry, &mut archive)?;
    }
    // What follows the last entry belongs to the digest too.
    let found = archive.into_inner().finish()?;
    if found != job.diff_id {
        return Err(UnpackError::WrongDiffId {
            expected: Box::new(job.diff_id),
            found: Box::new(found),
        });
    }
    writer.finish()
}

/// Unpacks an archive of any size into an empty folder. Whether it was whole: an archive ends with a mark.
pub(crate) fn unpack_folder(
    input: impl Read,
    target: &Path,
    privilege: Privilege,
    cancelled: &AtomicBool,
) -> Result<bool, UnpackError> {
    let limits = UnpackLimits {
        max_entries: u64::MAX,
        max_layer_bytes: u64::MAX,
    };
    let job = UnpackJob {
        limits: &limits,
        privilege,
        diff_id: Digest::of(&[]),
        cancelled,
    };
    let mut archive = TarReader::new(Measured::new(input, limits.max_layer_bytes, cancelled));
    let mut writer = LayerWriter::open(target, &job, Purpose::Folder)?;
    while let Some(entry) = archive.next_entry()? {
        writer.apply(&entry, &mut archive)?;
    }
    let is_whole = archive.is_ended();
    // Whoever sends it is heard to the end.
    archive.into_inner().finish()?;
    writer.finish()?;
    Ok(is_whole)
}
