//! A folder on a file system in memory, for what must not reach a disk.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use dhow_core::spec::ContentHash;

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// Others may pass through it, to a folder that they may open; they see nothing of it.
pub(super) const MODE: u32 = 0o711;

/// One daemon's folder in memory, made when it is needed first.
#[derive(Clone, Debug)]
pub struct MemoryFolder {
    name: String,
}

impl MemoryFolder {
    /// The one of the daemon that has this folder on its disk.
    pub fn beside(disk: &Path) -> Self {
        let hash = ContentHash::of(disk.as_os_str().as_encoded_bytes()).to_string();
        Self {
            name: format!("dhow-files-{}-{:.16}", nix::unistd::geteuid(), hash),
        }
    }

    /// The one that is there, if it is this daemon's. Blocks.
    pub fn found(&self) -> Option<PathBuf> {
        self.path().filter(|dir| is_own(dir).is_ok_and(|own| own))
    }

    fn path(&self) -> Option<PathBuf> {
        base().map(|base| base.join(&self.name))
    }

    /// Makes it, or checks that the one there is this daemon's: in a folder that all may write to, another user may have
    /// been first. Blocks.
    pub fn open(&self) -> io::Result<PathBuf> {
        let none = || io::Error::other("neither /run nor /dev/shm is a tmpfs that this user may write to");
        let dir = self.path().ok_or_else(none)?;
        match DirBuilder::new().mode(MODE).create(&dir) {
            Ok(()) => {
                // Whatever mask the daemon has.
                fs::set_permissions(&dir, fs::Permissions::from_mode(MODE))?;
                return Ok(dir);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        match is_own(&dir)? {
            true => Ok(dir),
            false => Err(io::Error::other(format!(
                "{} belongs to somebody else, or others may write to it: remove it",
                dir.display()
            ))),
        }
    }
}

/// Whether it is a folder, no link to one, that this daemon's user alone may write to. Nobody else can put another in its
/// place then: the folder above keeps what belongs to others.
fn is_own(dir: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(dir)?;
    let own = nix::unistd::geteuid().as_raw();
    Ok(found.is_dir() && found.uid() == own && found.mode() & 0o022 == 0)
}

/// The first usual place that is in memory and that this user may write to.
fn base() -> Option<PathBuf> {
    let runtime_dir = format!("/run/user/{}", nix::unistd::geteuid());
    let usual = ["/run", &runtime_dir, "/dev/shm"];
    usual.into_iter().map(PathBuf::from).find(|path| {
        let may_write = nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).is_ok();
        may_write && is_memory(path)
    })
}

fn is_memory(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| {
        #[expect(clippy::unnecessary_cast, reason = "its width differs between platforms")]
        let kind = found.f_type as i64;
        kind == TMPFS || kind == RAMFS
    })
}
