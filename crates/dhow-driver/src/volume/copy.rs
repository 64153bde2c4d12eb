//! Copies a folder with all that its files have: owners, modes, times, links, extended attributes.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmod, chownat, lgetxattr,
    llistxattr, lsetxattr, mknodat, utimensat,
};
use rustix::io::Errno;

/// The longest list of names, and the longest value, that Linux takes for extended attributes.
const XATTR_BYTES_MAX: usize = 64 * 1024;
/// Files with several names are found again by a number; with more of them each name gets a file of its own.
const LINKS_MAX: usize = 1 << 20;

/// Copies what is in `from` into the folder `to`, and what `from` itself has. No link is followed.
pub(super) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let mut linked: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    let mut waiting = vec![(from.to_owned(), to.to_owned())];
    let mut folders = Vec::new();
    while let Some((from, to)) = waiting.pop() {
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let (source, target) = (entry.path(), to.join(entry.file_name()));
            let found = fs::symlink_metadata(&source)?;
            if found.is_dir() {
                fs::create_dir(&target)?;
                waiting.push((source, target));
                continue;
            }
            let key = (found.dev(), found.ino());
            if found.nlink() > 1 {
                if let Some(first) = linked.get(&key) {
                    fs::hard_link(first, &target)?;
                    continue;
                }
                if linked.len() < LINKS_MAX {
                    linked.insert(key, target.clone());
                }
            }
            if copy_one(&source, &target, &found)? {
                copy_attributes(&source, &target, &found)?;
            }
        }
        folders.push((from, to));
    }
    // What is made inside a folder changes its time, so the innermost come first.
    for (from, to) in folders.iter().rev() {
        copy_attributes(from, to, &fs::symlink_metadata(from)?)?;
    }
    Ok(())
}

/// Makes one thing that is no folder; whether there is something now. A socket means nothing without who listens.
fn copy_one(source: &Path, target: &Path, found: &Metadata) -> io::Result<bool> {
    let kind = FileType::from_raw_mode(found.mode());
    match kind {
        FileType::RegularFile => {
            let mut from = open_regular(source)?;
            let mut to = File::create_new(target)?;
            io::copy(&mut from, &mut to)?;
        }
        FileType::Symlink => symlink(fs::read_link(source)?, target)?,
        FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice => {
            mknodat(CWD, target, kind, Mode::RUSR | Mode::WUSR, found.rdev())?;
        }
        FileType::Directory | FileType::Socket | FileType::Unknown => return Ok(false),
    }
    Ok(true)
}

/// Opens a file that nothing has put something else in place of.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    use rustix::fs::{OFlags, open};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Owner, mode, extended attributes and time, in the order that keeps them: a change of owner clears set-user-id bits.
pub(super) fn copy_attributes(source: &Path, target: &Path, found: &Metadata) -> io::Result<()> {
    let owner = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
    chownat(
        CWD,
        target,
        Some(owner.0),
        Some(owner.1),
        AtFlags::SYMLINK_NOFOLLOW,
    )?;
    if !found.file_type().is_symlink() {
        chmod(target, Mode::from_raw_mode(found.mode() & 0o7777))?;
    }
    for (name, value) in attributes(source)? {
        match lsetxattr(target, name.as_slice(), &value, XattrFlags::empty()) {
            Ok(()) | Err(Errno::NOTSUP | Errno::PERM | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let time = |seconds, nanoseconds| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let times = Timestamps {
        last_access: time(found.atime(), found.atime_nsec()),
        last_modification: time(found.mtime(), found.mtime_nsec()),
    };
    Ok(utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The extended attributes that may go from one file system to another.
pub(super) fn attributes(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = match llistxattr(path, &mut names) {
        Ok(length) => length,
        Err(Errno::NOTSUP | Errno::PERM) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| travels(name))
    {
        let mut value = vec![0; XATTR_BYTES_MAX];
        match lgetxattr(path, name, &mut value) {
            Ok(length) => found.push((name.to_vec(), value[..length].to_vec())),
            // It has gone meanwhile.
            Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Not the host's security labels, and not what overlayfs notes for itself.
fn travels(name: &[u8]) -> bool {
    let is_own = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
    is_own || name == b"security.capability" || name.starts_with(b"system.posix_acl_")
}
