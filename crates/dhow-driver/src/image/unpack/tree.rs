//! The directory that a layer is unpacked into, seen only from inside: every path is resolved beneath its
//! root, whatever links the layer has made there.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, XattrFlags, lgetxattr, lsetxattr, mkdirat, mknodat,
    openat, openat2, readlinkat, statat, unlinkat,
};
use rustix::io::Errno;

use super::limits::MAX_DEPTH;
use super::tar_path::TarPath;
use super::{EntryRefusal, Privilege};
use crate::image::store::{Failing, StoreError};

/// Overlayfs reads these on its layers; the second name where the process is not root.
const OPAQUE_TRUSTED: &str = "trusted.overlay.opaque";
const OPAQUE_USER: &str = "user.overlay.opaque";
const OPAQUE_VALUE: &[u8] = b"y";
/// Of directories that a layer only implies.
pub(super) const IMPLIED_MODE: u32 = 0o755;
/// The kernel asks to try again when something was renamed meanwhile; nothing of a layer is, by others.
const MAX_RESOLVE_ATTEMPTS: u32 = 16;

const DIR_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How paths are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolver {
    /// By `openat2`: links inside the layer are followed, those that lead out are errors.
    Kernel,
    /// Step by step, refusing every link; for kernels before 5.6 and sandboxes that hide the call.
    Walk,
}

/// The directory that a layer is unpacked into.
pub(super) struct Tree {
    root: OwnedFd,
    path: PathBuf,
    privilege: Privilege,
    resolver: Resolver,
}

/// What stands at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Present {
    Nothing,
    Directory,
    Whiteout,
    Other,
}

impl Tree {
    pub fn open(path: &Path, privilege: Privilege) -> Result<Self, StoreError> {
        let root = openat(CWD, path, DIR_FLAGS | OFlags::NOFOLLOW, Mode::empty());
        let root = root.map_err(io::Error::from).failing("open", path)?;
        let probe = openat2(&root, ".", DIR_FLAGS, Mode::empty(), ResolveFlags::BENEATH);
        let resolver = if probe.is_ok() {
            Resolver::Kernel
        } else {
            Resolver::Walk
        };
        Ok(Self {
            root,
            path: path.to_owned(),
            privilege,
            resolver,
        })
    }

    #[cfg(test)]
    pub fn set_resolver(&mut self, resolver: Resolver) {
        self.resolver = resolver;
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory of the layer.
    pub fn open_dir(&self, path: &TarPath) -> Result<OwnedFd, Errno> {
        match self.resolver {
            Resolver::Kernel => self.open_by_kernel(path),
            Resolver::Walk => self.open_by_walk(path),
        }
    }

    fn open_by_kernel(&self, path: &TarPath) -> Result<OwnedFd, Errno> {
        match self.open_beneath(path, ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => {}
            result => return result,
        }
        let dir = self.open_beneath(path, ResolveFlags::empty())?;
        // Through links a layer could nest directories deeper than any single path is long.
        if self.real_depth(&dir)? > MAX_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(dir)
    }

    fn open_beneath(&self, path: &TarPath, more: ResolveFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV | more;
        let mut attempts = 0;
        loop {
            attempts += 1;
            match openat2(&self.root, path.as_path(), DIR_FLAGS, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if attempts < MAX_RESOLVE_ATTEMPTS => {}
                result => return result,
            }
        }
    }

    /// How many directories lie between the layer's root and this one.
    fn real_depth(&self, dir: &OwnedFd) -> Result<usize, Errno> {
        let depth = |dir: &OwnedFd| {
            readlinkat(CWD, handle_path(dir), Vec::new()).map(|path| slashes(path.to_bytes()))
        };
        // A path that is too long for the kernel to tell is too deep.
        Ok(depth(dir)?.saturating_sub(depth(&self.root)?))
    }

    fn open_by_walk(&self, path: &TarPath) -> Result<OwnedFd, Errno> {
        let mut dir = openat(&self.root, ".", DIR_FLAGS, Mode::empty())?;
        for part in path.as_path().components() {
            let next = openat(
                &dir,
                part.as_os_str(),
                DIR_FLAGS | OFlags::NOFOLLOW,
                Mode::empty(),
            );
            dir = match next {
                // With these flags a link reads as "no directory"; say what it is.
                Err(Errno::NOTDIR) if is_link(&dir, part.as_os_str()) => return Err(Errno::LOOP),
                next => next?,
            };
        }
        Ok(dir)
    }

    /// What stands at this name, not following a link.
    pub fn present(&self, dir: &OwnedFd, name: &OsStr) -> Result<Present, Errno> {
        match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => Present::Directory,
                FileType::CharacterDevice if stat.st_rdev == 0 => Present::Whiteout,
                _ => Present::Other,
            }),
            Err(Errno::NOENT) => Ok(Present::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Removes what stands at this name, with all below it.
    pub fn remove(&self, dir: &OwnedFd, name: &OsStr, present: Present) -> io::Result<()> {
        match present {
            Present::Nothing => Ok(()),
            // The standard library's removal follows no link.
            Present::Directory => fs::remove_dir_all(proc_path(dir, name)),
            Present::Whiteout | Present::Other => Ok(unlinkat(dir, name, AtFlags::empty())?),
        }
    }

    /// Marks a name as deleted in the layers below.
    pub fn make_whiteout(&self, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        mknodat(dir, name, FileType::CharacterDevice, Mode::empty(), 0)
    }

    /// Hides what the layers below have in this directory.
    pub fn make_opaque(&self, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let attribute = match self.privilege {
            Privilege::Root => OPAQUE_TRUSTED,
            Privilege::BestEffort => OPAQUE_USER,
        };
        lsetxattr(proc_path(dir, name), attribute, OPAQUE_VALUE, XattrFlags::empty())
    }

    /// Makes a directory that the layer only implies.
    pub fn make_implied(&self, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        mkdirat(dir, name, Mode::from_raw_mode(IMPLIED_MODE))?;
        // The process's umask took part above.
        rustix::fs::chmodat(dir, name, Mode::from_raw_mode(IMPLIED_MODE), AtFlags::empty())
    }
}

/// Whether a directory of an unpacked layer hides what the layers below have in it.
pub(crate) fn is_opaque(dir: &Path) -> bool {
    let mut value = [0; 8];
    [OPAQUE_TRUSTED, OPAQUE_USER]
        .iter()
        .any(|name| lgetxattr(dir, *name, &mut value).is_ok_and(|length| value[..length] == *OPAQUE_VALUE))
}

fn is_link(dir: &OwnedFd, name: &OsStr) -> bool {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// A path for calls that take no directory handle. The handle part is the kernel's own link, which leads to
/// exactly that directory; the name is not followed by the calls that get this.
pub(super) fn proc_path(dir: &OwnedFd, name: &OsStr) -> PathBuf {
    handle_path(dir).join(name)
}

fn handle_path(dir: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string())
}

fn slashes(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count()
}

/// What the failure to reach a parent directory means; none where it is the host's fault.
pub(super) fn parent_refusal(error: Errno) -> Option<EntryRefusal> {
    match error {
        Errno::XDEV | Errno::LOOP => Some(EntryRefusal::ThroughLink),
        Errno::NOTDIR => Some(EntryRefusal::ParentNotDirectory),
        Errno::NAMETOOLONG => Some(EntryRefusal::PathTooLong),
        _ => None,
    }
}
