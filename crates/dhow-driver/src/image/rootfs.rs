//! A replica's root file system: an image's layers under a layer of the replica's own, by overlayfs.
//!
//! The container driver calls it, on a thread that may block. In the replica's directory lie `rootfs` (where
//! it is mounted), `upper` and `work` (what the replica writes) or `top` (where it may not write), and
//! `rootfs.json` with what was mounted, so that a restarted daemon knows. It never changes the working
//! directory of the process and never touches anything else in the replica's directory.

mod error;
mod fixes;
mod overlay;
#[cfg(test)]
mod tests;
mod top;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dhow_disk::Outlives;
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::images::Image;
use super::reference::ImageRef;
use super::store::{Failing, remove_tree};
use super::unpack::Privilege;
pub use error::RootfsError;
pub(crate) use fixes::fixes;
use overlay::{Overlay, Writable};

const MOUNT_POINT: &str = "rootfs";
const UPPER: &str = "upper";
const WORK: &str = "work";
const TOP: &str = "top";
const STATE: &str = "rootfs.json";
/// The form of the state file; raised when it changes.
const STATE_VERSION: u32 = 1;
/// Mounts on one place that `unmount` takes away; more than one means that somebody else mounted there.
const MAX_STACKED_MOUNTS: u32 = 16;

/// How a root file system is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootfsOptions {
    /// Nothing can be written; volumes are mounted over it as ever.
    pub read_only: bool,
}

/// A mounted root file system. Dropping it leaves the mount: replicas outlive the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rootfs {
    dir: PathBuf,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    version: u32,
    reference: ImageRef,
    image: Digest,
    read_only: bool,
}

impl Rootfs {
    /// Mounts an image in a replica's directory, which is made if needed. What is mounted already stays as it
    /// is, and what the replica wrote earlier is there again. Hold the image until this returns; from then on
    /// name [`Rootfs::image`] among those in use.
    pub fn mount(image: &Image, replica_dir: &Path, options: RootfsOptions) -> Result<Self, RootfsError> {
        Privilege::Root.check().map_err(|_| RootfsError::NotRoot)?;
        fs::create_dir_all(replica_dir).failing("create", replica_dir)?;
        let dir = replica_dir.canonicalize().failing("resolve", replica_dir)?;
        let state = State {
            version: STATE_VERSION,
            reference: image.reference().clone(),
            image: image.digest(),
            read_only: options.read_only,
        };
        let rootfs = Self { dir, state };
        let target = rootfs.path();
        match Self::load(&rootfs.dir)? {
            Some(earlier) => rootfs.check_same(&earlier)?,
            // What is mounted without a record is of an earlier life of the directory, and may be another image.
            None => Self::clear(&rootfs.dir)?,
        }
        if is_mount_point(&target)? {
            return Ok(rootfs);
        }
        fs::create_dir_all(&target).failing("create", &target)?;
        rootfs.write_state()?;
        let mut lower = image.layer_dirs();
        let fixes = &image.record().fixes;
        let writable = if options.read_only {
            // A layer of our own on top: overlayfs wants two where nothing can be written.
            lower.insert(0, top::prepare(&rootfs.dir.join(TOP), fixes)?);
            None
        } else {
            let upper = top::prepare(&rootfs.dir.join(UPPER), fixes)?;
            let work = rootfs.dir.join(WORK);
            fs::create_dir_all(&work).failing("create", &work)?;
            Some(Writable { upper, work })
        };
        let lower = rootfs.at_least(lower, if writable.is_some() { 1 } else { 2 })?;
        Overlay { lower, writable }.mount(&target)?;
        // What is mounted is in use; a time that cannot be set must not stop a replica.
        let _ = image.mark_used();
        Ok(rootfs)
    }

    /// What one image's replica wrote must never be seen over another image.
    fn check_same(&self, earlier: &Self) -> Result<(), RootfsError> {
        let (ours, theirs) = (&self.state, &earlier.state);
        if (ours.image, ours.read_only) == (theirs.image, theirs.read_only) {
            return Ok(());
        }
        Err(RootfsError::Another {
            path: self.dir.clone(),
            image: Box::new(theirs.image),
        })
    }

    /// An image may have no layers at all; overlayfs needs some.
    fn at_least(&self, mut lower: Vec<PathBuf>, count: usize) -> Result<Vec<PathBuf>, RootfsError> {
        let mut number = 0;
        while lower.len() < count {
            let empty = self.dir.join(format!("empty-{number}"));
            fs::create_dir_all(&empty).failing("create", &empty)?;
            lower.push(empty);
            number += 1;
        }
        Ok(lower)
    }

    /// What was mounted in a replica's directory, as its state file says; none if nothing ever was.
    pub fn load(replica_dir: &Path) -> Result<Option<Self>, RootfsError> {
        let path = replica_dir.join(STATE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).failing("read", &path)?,
        };
        let state = serde_json::from_slice(&bytes).map_err(|error| RootfsError::Damaged {
            path,
            detail: error.to_string(),
        })?;
        let dir = replica_dir.canonicalize().failing("resolve", replica_dir)?;
        Ok(Some(Self { dir, state }))
    }

    /// Where the replica's root is.
    pub fn path(&self) -> PathBuf {
        self.dir.join(MOUNT_POINT)
    }

    /// The image, to be named as in use.
    pub fn image(&self) -> Digest {
        self.state.image
    }

    pub fn reference(&self) -> &ImageRef {
        &self.state.reference
    }

    /// Whether it is mounted at present: after a reboot it is not.
    pub fn is_mounted(&self) -> Result<bool, RootfsError> {
        is_mount_point(&self.path())
    }

    /// Takes the mount away; what the replica wrote stays. Not being mounted is fine. A process that still
    /// stands inside keeps its view of it and hinders nobody.
    pub fn unmount(&self) -> Result<(), RootfsError> {
        unmount_all(&self.path())
    }

    /// Unmounts and removes what the replica wrote, and all else that [`Rootfs::mount`] made, whether there is a record
    /// of it or not: a mount outlives the removal of everything around it. Nothing being there is fine.
    pub fn clear(replica_dir: &Path) -> Result<(), RootfsError> {
        let target = replica_dir.join(MOUNT_POINT);
        unmount_all(&target)?;
        match fs::remove_dir(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).failing("remove", &target)?,
            Ok(()) | Err(_) => {}
        }
        for name in [UPPER, WORK, TOP, "empty-0", "empty-1"] {
            remove_tree(&replica_dir.join(name))?;
        }
        let state = replica_dir.join(STATE);
        match fs::remove_file(&state) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).failing("remove", &state)?,
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn write_state(&self) -> Result<(), RootfsError> {
        let path = self.dir.join(STATE);
        let bytes = serde_json::to_vec_pretty(&self.state)
            .map_err(io::Error::from)
            .failing("write", &path)?;
        // Nothing is mounted any more after a power cut, and a root without its record is made anew.
        dhow_disk::replace(&path, &bytes, Outlives::Process).failing("write", &path)?;
        Ok(())
    }
}

fn unmount_all(target: &Path) -> Result<(), RootfsError> {
    for _ in 0..MAX_STACKED_MOUNTS {
        if !is_mount_point(target)? {
            return Ok(());
        }
        let plain = unmount(target, UnmountFlags::NOFOLLOW);
        let done = plain.or_else(|_| unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH));
        done.map_err(|error| RootfsError::Unmount {
            path: target.to_owned(),
            source: error.into(),
        })?;
    }
    Err(RootfsError::StillMounted {
        path: target.to_owned(),
    })
}

/// Whether something is mounted here: it then lies on another device than its parent.
fn is_mount_point(path: &Path) -> Result<bool, RootfsError> {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta.dev())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).failing("look at", path),
    };
    let (Some(own), Some(parent)) = (device(path)?, path.parent().map(device).transpose()?.flatten()) else {
        return Ok(false);
    };
    Ok(own != parent)
}
