//! Files that must not outlive the host's run, or touch a disk: runtime configurations hold secrets.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::driver::Cause;

use super::network::hash;

/// Where memory-backed file systems usually are.
const USUAL: [&str; 2] = ["/run", "/dev/shm"];
/// Holds the folders of all drivers of this host.
const SHARED: &str = "dhow";
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// The folder of one driver on a memory-backed file system, readable for root alone.
#[derive(Clone, Debug)]
pub(super) struct Volatile {
    dir: PathBuf,
}

impl Volatile {
    /// Finds or makes it. `wanted` is taken as it is.
    pub fn open(wanted: Option<&Path>, run_dir: &Path) -> Result<Self, Cause> {
        let dir = match wanted {
            Some(dir) => dir.to_owned(),
            None => default_dir(run_dir)?,
        };
        let this = Self { dir };
        for folder in [this.dir.clone(), this.bundles(), this.runtime_root()] {
            private_dir(&folder)?;
        }
        Ok(this)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn bundle(&self, id: &str) -> PathBuf {
        self.bundles().join(id)
    }

    fn bundles(&self) -> PathBuf {
        self.dir.join("bundles")
    }

    /// Where the runtime keeps what it knows.
    pub fn runtime_root(&self) -> PathBuf {
        self.dir.join("runtime")
    }

    /// Makes a replica's bundle folder, empty.
    pub fn make_bundle(&self, id: &str) -> Result<PathBuf, Cause> {
        let dir = self.bundle(id);
        remove_tree(&dir)?;
        private_dir(&dir)?;
        Ok(dir)
    }

    /// Removes the bundle and what the runtime knows of a container that does not run any more.
    pub fn forget(&self, id: &str) -> Result<(), Cause> {
        remove_tree(&self.runtime_root().join(id))?;
        remove_tree(&self.bundle(id))
    }

    /// Every container that something is left of.
    pub fn ids(&self) -> Result<Vec<String>, Cause> {
        let mut ids = Vec::new();
        for folder in [self.bundles(), self.runtime_root()] {
            let entries = fs::read_dir(&folder).map_err(Cause::file("listing", &folder))?;
            let dirs = entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            ids.extend(dirs.filter_map(|entry| entry.file_name().into_string().ok()));
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids.into_iter().filter(|id| !id.starts_with('.')).collect())
    }

    /// Removes all of it, for the end of all use.
    pub fn remove(&self) -> Result<(), Cause> {
        remove_tree(&self.dir)?;
        if self.dir.parent().is_some_and(|parent| parent.ends_with(SHARED)) {
            // Others may be in it.
            let _ = self.dir.parent().map(fs::remove_dir);
        }
        Ok(())
    }
}

fn default_dir(run_dir: &Path) -> Result<PathBuf, Cause> {
    let is_memory = |path: &&str| {
        rustix::fs::statfs(*path).is_ok_and(|found| {
            #[expect(clippy::unnecessary_cast, reason = "its width differs between platforms")]
            let kind = found.f_type as i64;
            kind == TMPFS || kind == RAMFS
        })
    };
    let Some(base) = USUAL.into_iter().find(is_memory) else {
        return Err(Cause::NoContainers {
            why: "neither /run nor /dev/shm is a tmpfs, and secrets must not reach a disk: mount one".into(),
        });
    };
    let own = format!("{:016x}", hash(&run_dir.display().to_string()));
    let shared = Path::new(base).join(SHARED);
    private_dir(&shared)?;
    Ok(shared.join(own))
}

/// Makes a folder for root alone, or checks that the one there is: in a folder that all may write to, another user may
/// have been first.
fn private_dir(dir: &Path) -> Result<(), Cause> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Cause::file("making", dir)(error)),
    }
    let found = fs::symlink_metadata(dir).map_err(Cause::file("looking at", dir))?;
    let own = nix::unistd::geteuid().as_raw();
    if found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(Cause::file("using", dir)(io::Error::other(
        "it belongs to somebody else, or others may read it: remove it",
    )))
}

pub(super) fn remove_tree(dir: &Path) -> Result<(), Cause> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Cause::file("removing", dir)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
