//! A tar stream as files below a folder. No link on the way is followed, neither one of the stream nor one that was there.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, fchmod, futimens, linkat, mkdirat, openat,
    statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

use super::CarryError;
use super::long_names::LongNames;

/// Entries of one stream: a folder's mode is set at the end, so that each folder is remembered.
const ENTRIES_MAX: usize = 4_000_000;
/// No sane tree is deeper, and paths have to be written out.
pub(super) const DEPTH_MAX: usize = 256;

const DIR_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// What counts of a mode: nobody gains rights by a file that was carried.
const MODE_BITS: u32 = 0o777;

/// What was carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    pub files: usize,
    pub bytes: u64,
}

/// Unpacks below the path: into it where it is a folder, else under its name beside what stands there.
pub fn unpack(path: &Path, stream: &mut impl Read) -> Result<Unpacked, CarryError> {
    let mut archive = Archive::new(stream);
    // What stands before an entry for its long names is read here: it has a bound, which the library's reading has not.
    let entries = archive.entries().map_err(CarryError::Stream)?.raw(true);
    let mut unpacker: Option<Unpacker> = None;
    let mut long = LongNames::default();
    for (count, entry) in entries.enumerate() {
        if count >= ENTRIES_MAX {
            return Err(CarryError::TooMany(ENTRIES_MAX));
        }
        let mut entry = entry.map_err(CarryError::Stream)?;
        if long.take(&mut entry)? {
            continue;
        }
        let names = std::mem::take(&mut long).with(&entry);
        let parts = names_in(&names.path)?;
        let unpacker = match &mut unpacker {
            Some(known) => known,
            none => none.insert(Unpacker::begin(path, &entry, parts.is_empty())?),
        };
        unpacker.take(&mut entry, parts, names.link.as_deref())?;
    }
    let unpacker = unpacker.ok_or(CarryError::Empty)?;
    unpacker.finish()
}

fn names_in(path: &Path) -> Result<Vec<OsString>, CarryError> {
    let shown = || path.display().to_string();
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name.to_owned()),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(CarryError::Outside(shown()));
            }
        }
    }
    match parts.len() > DEPTH_MAX {
        true => Err(CarryError::TooDeep(shown(), DEPTH_MAX)),
        false => Ok(parts),
    }
}

struct Unpacker {
    /// The folder below which everything stays.
    base: OwnedFd,
    /// What the first name of each entry becomes.
    rename: Option<OsString>,
    /// Folders that were made, with the modes that they get at the end.
    folders: Vec<(Vec<OsString>, u32)>,
    done: Unpacked,
}

impl Unpacker {
    /// Where the stream goes. Of this path alone links are followed: whoever named it meant what it leads to.
    fn begin(path: &Path, first: &Entry<'_, impl Read>, is_content: bool) -> Result<Self, CarryError> {
        let is_folder = first.header().entry_type() == EntryType::Directory;
        let ends_with_slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        let found = std::fs::metadata(path);
        let (base, rename) = match found {
            Ok(found) if found.is_dir() => (path.to_owned(), None),
            Ok(_) if is_folder || is_content => {
                return Err(CarryError::FolderOverFile(path.display().to_string()));
            }
            Ok(_) if ends_with_slash => return Err(CarryError::NoFolder(path.display().to_string())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(CarryError::at(path)(error)),
            Err(_) if is_content => {
                std::fs::create_dir(path).map_err(CarryError::at(path))?;
                (path.to_owned(), None)
            }
            Err(_) if ends_with_slash && !is_folder => {
                return Err(CarryError::NoFolder(path.display().to_string()));
            }
            Ok(_) | Err(_) => {
                let name = path.file_name();
                let name = name.ok_or_else(|| CarryError::at(path)(io::ErrorKind::NotFound.into()))?;
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                (parent.unwrap_or(Path::new(".")).to_owned(), Some(name.to_owned()))
            }
        };
        let flags = DIR_FLAGS.difference(OFlags::NOFOLLOW);
        let opened = openat(CWD, &base, flags, Mode::empty());
        Ok(Self {
            base: opened.map_err(|errno| CarryError::at(&base)(errno.into()))?,
            rename,
            folders: Vec::new(),
            done: Unpacked::default(),
        })
    }

    fn take(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        mut parts: Vec<OsString>,
        link: Option<&Path>,
    ) -> Result<(), CarryError> {
        if let (Some(name), Some(first)) = (&self.rename, parts.first_mut()) {
            first.clone_from(name);
        }
        let Some((name, before)) = parts.split_last() else {
            // The folder itself is there.
            return Ok(());
        };
        let shown: PathBuf = parts.iter().collect();
        let dir = self.folder_of(before)?;
        let mode = entry.header().mode().unwrap_or(0o644) & MODE_BITS;
        let failed = |errno: Errno| CarryError::at(&shown)(errno.into());
        match entry.header().entry_type() {
            EntryType::Directory => {
                match mkdirat(&dir, name, Mode::from_raw_mode(mode | 0o700)) {
                    Ok(()) => self.folders.push((parts.clone(), mode)),
                    Err(Errno::EXIST) if is_folder(&dir, name) => {}
                    Err(Errno::EXIST) => {
                        return Err(CarryError::FolderOverFile(shown.display().to_string()));
                    }
                    Err(errno) => return Err(failed(errno)),
                }
                return Ok(());
            }
            EntryType::Regular | EntryType::Continuous => {
                self.done.bytes += write_file(&dir, name, mode, entry).map_err(CarryError::at(&shown))?;
            }
            EntryType::Symlink => {
                let target = link.ok_or_else(|| CarryError::Kind(shown.display().to_string()))?;
                make_room(&dir, name).map_err(failed)?;
                symlinkat(target, &dir, name).map_err(failed)?;
            }
            EntryType::Link => {
                let target = link.ok_or_else(|| CarryError::Kind(shown.display().to_string()))?;
                self.link(target, (&dir, name), &shown)?;
            }
            _ => return Err(CarryError::Kind(shown.display().to_string())),
        }
        self.done.files += 1;
        Ok(())
    }

    /// A second name of a file that was unpacked before.
    fn link(&self, target: &Path, (dir, name): (&OwnedFd, &OsStr), shown: &Path) -> Result<(), CarryError> {
        let mut parts = names_in(target)?;
        if let (Some(name), Some(first)) = (&self.rename, parts.first_mut()) {
            first.clone_from(name);
        }
        let Some((old, before)) = parts.split_last() else {
            return Err(CarryError::Kind(shown.display().to_string()));
        };
        let from = self.folder_of(before)?;
        let failed = |errno: Errno| CarryError::at(shown)(errno.into());
        make_room(dir, name).map_err(failed)?;
        linkat(&from, old, dir, name, AtFlags::empty()).map_err(failed)
    }

    /// Opens the folder of these names, step by step, and makes what is missing.
    fn folder_of(&self, parts: &[OsString]) -> Result<OwnedFd, CarryError> {
        let failed = |errno: Errno, depth: usize| {
            let shown: PathBuf = parts.iter().take(depth + 1).collect();
            match errno {
                // With these flags a link reads as "no directory".
                Errno::LOOP | Errno::NOTDIR => CarryError::Outside(shown.display().to_string()),
                errno => CarryError::at(&shown)(errno.into()),
            }
        };
        let open = |dir: &OwnedFd, name: &OsStr| openat(dir, name, DIR_FLAGS, Mode::empty());
        let mut dir = open(&self.base, OsStr::new(".")).map_err(|errno| failed(errno, 0))?;
        for (depth, part) in parts.iter().enumerate() {
            let next = match open(&dir, part) {
                Err(Errno::NOENT) => {
                    mkdirat(&dir, part, Mode::from_raw_mode(0o755)).and_then(|()| open(&dir, part))
                }
                opened => opened,
            };
            dir = next.map_err(|errno| failed(errno, depth))?;
        }
        Ok(dir)
    }

    /// Gives folders their modes, the deepest first: one may forbid what is to be done in it.
    fn finish(self) -> Result<Unpacked, CarryError> {
        for (parts, mode) in self.folders.iter().rev() {
            let dir = self.folder_of(parts)?;
            let shown: PathBuf = parts.iter().collect();
            fchmod(&dir, Mode::from_raw_mode(*mode)).map_err(|errno| CarryError::at(&shown)(errno.into()))?;
        }
        Ok(self.done)
    }
}

fn is_folder(dir: &OwnedFd, name: &OsStr) -> bool {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Takes away what is no folder.
fn make_room(dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

fn write_file(dir: &OwnedFd, name: &OsStr, mode: u32, entry: &mut Entry<'_, impl Read>) -> io::Result<u64> {
    let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match make_room(dir, name) {
        Ok(()) => openat(dir, name, new, Mode::from_raw_mode(0o600)),
        // A file that is mounted by itself stays where it is, and is written over.
        Err(Errno::BUSY) => {
            let over = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            openat(dir, name, over, Mode::empty())
        }
        Err(errno) => Err(errno),
    };
    let mut file = File::from(opened?);
    let written = io::copy(entry, &mut file)?;
    if written < entry.size() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    fchmod(&file, Mode::from_raw_mode(mode))?;
    let seconds = i64::try_from(entry.header().mtime().unwrap_or(0)).unwrap_or(0);
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    // A file system that keeps no times keeps the file.
    let _ = futimens(&file, &times);
    Ok(written)
}
