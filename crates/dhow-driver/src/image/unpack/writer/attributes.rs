//! Owner, mode, extended attributes and time of an entry, in the order that keeps them: a change of owner
//! clears set-user-id bits and file capabilities, and every change but the last touches the time.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, lsetxattr, utimensat,
};
use rustix::io::Errno;

use super::super::tar_reader::{EntryKind, TarEntry};
use super::super::tree::proc_path;
use super::super::{Privilege, UnpackError};
use super::LayerWriter;

const MODE_BITS: u32 = 0o7777;
/// Without root a directory must stay writable for its owner, or nothing could be put into it.
const OWN_DIR_BITS: u32 = 0o700;

impl LayerWriter<'_> {
    pub(super) fn set_attributes(
        &self,
        entry: &TarEntry,
        dir: &OwnedFd,
        name: &OsStr,
    ) -> Result<(), UnpackError> {
        if self.privilege == Privilege::Root {
            let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
            let owned = chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
            owned.map_err(|error| self.failed("set the owner of", entry, error))?;
        }
        if !matches!(entry.kind, EntryKind::SymbolicLink { .. }) {
            let mut mode = entry.mode & MODE_BITS;
            if self.privilege == Privilege::BestEffort && entry.kind == EntryKind::Directory {
                mode |= OWN_DIR_BITS;
            }
            let set = chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty());
            set.map_err(|error| self.failed("set the mode of", entry, error))?;
        }
        for (key, value) in &entry.xattrs {
            self.set_xattr(entry, dir, name, key, value)?;
        }
        set_time(dir, name, entry.mtime).map_err(|error| self.failed("set the time of", entry, error))
    }

    fn set_xattr(
        &self,
        entry: &TarEntry,
        dir: &OwnedFd,
        name: &OsStr,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), UnpackError> {
        let needed = match XattrUse::of(key) {
            XattrUse::Ignored => return Ok(()),
            XattrUse::Optional => false,
            XattrUse::Needed => self.privilege == Privilege::Root,
        };
        match lsetxattr(proc_path(dir, name), key, value, XattrFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::NOTSUP | Errno::PERM | Errno::INVAL) if !needed => Ok(()),
            Err(error) => Err(self.failed("set an extended attribute of", entry, error)),
        }
    }
}

/// What is done with an extended attribute of a layer.
enum XattrUse {
    /// Programs depend on it: a ping without its capability does not work.
    Needed,
    /// Kept where the file system can.
    Optional,
    /// Never taken from an image: overlayfs's own, with which a layer could point out of itself, and the
    /// host's security labels.
    Ignored,
}

impl XattrUse {
    fn of(key: &[u8]) -> Self {
        match key {
            b"security.capability" => Self::Needed,
            b"system.posix_acl_access" | b"system.posix_acl_default" => Self::Optional,
            key if key.starts_with(b"user.overlay.") => Self::Ignored,
            key if key.starts_with(b"user.") => Self::Optional,
            _ => Self::Ignored,
        }
    }
}

/// Sets the time of last change; a link's own, not its target's.
pub(super) fn set_time(dir: &OwnedFd, name: &OsStr, (seconds, nanoseconds): (i64, u32)) -> Result<(), Errno> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.into(),
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
}
