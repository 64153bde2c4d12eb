//! A file or a folder as a tar stream. Links are written as links, and none is followed below the path that is named.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use tar::{Builder, EntryType, Header};

use super::CarryError;
use super::unpack::DEPTH_MAX;

const DIR_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// A pipe that somebody put in a file's place is not waited for.
const FILE_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Writes what stands at the path, under its own name; with `/.` behind a folder its content alone. What is no file, no
/// folder and no link is told and left out.
pub fn pack(path: &Path, out: &mut impl Write, left_out: &mut dyn FnMut(&str)) -> Result<(), CarryError> {
    let text = path.as_os_str().as_bytes();
    let is_content = text == b"/" || text == b"." || text.ends_with(b"/.") || text == b"..";
    let mut packer = Packer {
        builder: Builder::new(out),
        left_out,
    };
    if is_content {
        let folder = openat(CWD, path, DIR_FLAGS, Mode::empty());
        let folder = folder.map_err(|errno| CarryError::at(path)(errno.into()))?;
        packer.folder(&folder, PathBuf::from("."), 0)?;
    } else {
        // With a `/` behind it a link to a folder is that folder.
        let follows = text.ends_with(b"/");
        let name = path
            .file_name()
            .ok_or_else(|| CarryError::at(path)(io::ErrorKind::NotFound.into()))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, parent, flags, Mode::empty());
        let dir = dir.map_err(|errno| CarryError::at(path)(errno.into()))?;
        match follows {
            true => {
                let flags = DIR_FLAGS.difference(OFlags::NOFOLLOW);
                let folder = openat(&dir, name, flags, Mode::empty());
                let folder = folder.map_err(|errno| CarryError::at(path)(errno.into()))?;
                packer.folder(&folder, PathBuf::from(name), 0)?;
            }
            false => packer.entry(&dir, name, PathBuf::from(name), 0)?,
        }
    }
    packer.builder.finish().map_err(CarryError::Stream)
}

struct Packer<'a, W: Write> {
    builder: Builder<&'a mut W>,
    left_out: &'a mut dyn FnMut(&str),
}

impl<W: Write> Packer<'_, W> {
    fn entry(&mut self, dir: &OwnedFd, name: &OsStr, shown: PathBuf, depth: usize) -> Result<(), CarryError> {
        let failed = |errno: rustix::io::Errno| CarryError::at(&shown)(errno.into());
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let file = openat(dir, name, FILE_FLAGS, Mode::empty()).map_err(failed)?;
                self.file(file, &shown)
            }
            FileType::Directory => {
                let folder = openat(dir, name, DIR_FLAGS, Mode::empty()).map_err(failed)?;
                self.folder(&folder, shown, depth)
            }
            FileType::Symlink => {
                let target = readlinkat(dir, name, Vec::new()).map_err(failed)?;
                let mut header = header(&stat, EntryType::Symlink, 0);
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                let written = self.builder.append_link(&mut header, &shown, target);
                written.map_err(CarryError::Stream)
            }
            _ => {
                (self.left_out)(&shown.display().to_string());
                Ok(())
            }
        }
    }

    fn file(&mut self, file: OwnedFd, shown: &Path) -> Result<(), CarryError> {
        let stat = fstat(&file).map_err(|errno| CarryError::at(shown)(errno.into()))?;
        // It may have become something else since it was looked at.
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            (self.left_out)(&shown.display().to_string());
            return Ok(());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let mut header = header(&stat, EntryType::Regular, size);
        // One that shrinks meanwhile is filled up, and of one that grows the rest is left: the stream stays whole.
        let data = File::from(file).chain(io::repeat(0)).take(size);
        let written = self.builder.append_data(&mut header, shown, data);
        written.map_err(CarryError::at(shown))
    }

    fn folder(&mut self, folder: &OwnedFd, shown: PathBuf, depth: usize) -> Result<(), CarryError> {
        if depth > DEPTH_MAX {
            return Err(CarryError::TooDeep(shown.display().to_string(), DEPTH_MAX));
        }
        let failed = |errno: rustix::io::Errno| CarryError::at(&shown)(errno.into());
        let stat = fstat(folder).map_err(failed)?;
        let mut header = header(&stat, EntryType::Directory, 0);
        let named = shown.join("");
        self.builder
            .append_data(&mut header, &named, io::empty())
            .map_err(CarryError::Stream)?;
        // Read as a whole first, so that no more than one folder of each depth is open.
        let mut names: Vec<OsString> = Vec::new();
        for entry in Dir::read_from(folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort();
        for name in names {
            let inner = shown.join(&name);
            match self.entry(folder, &name, inner, depth + 1) {
                // What goes while it is read is not there.
                Err(CarryError::Path { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
        Ok(())
    }
}

fn header(stat: &Stat, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header
}
