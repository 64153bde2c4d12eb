//! The names of the store's directories.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::files::Failing;

/// Only the owner enters: unpacked layers hold set-user-id programs of strangers.
const PRIVATE_MODE: u32 = 0o700;
/// The root of a layer, which is the root that a container's users see.
const PLAIN_MODE: u32 = 0o755;

/// Where the parts of an image store are.
#[derive(Clone, Debug)]
pub(super) struct Dirs {
    root: PathBuf,
}

impl Dirs {
    pub fn create(root: &Path) -> Result<Self, StoreError> {
        create_private(root)?;
        // Overlay mounts name layers by path, so the path has to hold wherever the process stands.
        let root = root.canonicalize().failing("resolve", root)?;
        let dirs = Self { root };
        let all = [
            dirs.blobs(),
            dirs.layers(),
            dirs.images(),
            dirs.partial(),
            dirs.locks(),
            dirs.sessions(),
        ];
        for dir in all {
            create_private(&dir)?;
        }
        Ok(dirs)
    }

    pub fn index(&self) -> PathBuf {
        self.root.join("index.json")
    }

    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs/sha256")
    }

    pub fn layers(&self) -> PathBuf {
        self.root.join("layers/sha256")
    }

    pub fn images(&self) -> PathBuf {
        self.root.join("images/sha256")
    }

    pub fn partial(&self) -> PathBuf {
        self.root.join("partial")
    }

    pub fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }
}

pub(super) fn create_private(dir: &Path) -> Result<(), StoreError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_MODE)
        .create(dir)
        .failing("create", dir)
}

/// Makes a directory with the mode that a layer's root has unless the layer says otherwise.
pub(super) fn create_plain(dir: &Path) -> Result<(), StoreError> {
    fs::create_dir(dir).failing("create", dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(PLAIN_MODE)).failing("set the mode of", dir)
}
