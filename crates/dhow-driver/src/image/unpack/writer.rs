//! Applies entries to the layer's directory, in the order of the archive.

mod attributes;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, linkat, makedev, mkdirat, mknodat, openat, symlinkat};
use rustix::io::Errno;

use super::limits::{MAX_DIR_PATH_BYTES, UnpackLimits};
use super::tar_path::TarPath;
use super::tar_reader::{EntryKind, FileParts, TarEntry, TarReader};
use super::tree::{Present, Tree, parent_refusal};
use super::{
    DirAttributes, EntryRefusal, LayerMeta, LimitKind, META_VERSION, Privilege, Purpose, UnpackError,
    UnpackJob,
};
use crate::image::room::Room;
use crate::image::store::StoreError;

const WHITEOUT_PREFIX: &[u8] = b".wh.";
/// Names with the prefix twice are marks of their own kind; only this one has a meaning in images.
const WHITEOUT_META_PREFIX: &[u8] = b".wh..wh.";
const OPAQUE_NAME: &[u8] = b".wh..wh..opq";
const COPY_BUFFER_BYTES: usize = 128 << 10;
/// How much is written before the disk is looked at again.
const LOOK_AGAIN_BYTES: u64 = 64 << 20;
/// How many things are made before it is looked whether it takes more of them.
const LOOK_AGAIN_ENTRIES: u64 = 256;
/// A new file, before its own mode is set.
const NEW_FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Writes the entries of one layer into its directory.
pub(super) struct LayerWriter<'a> {
    tree: Tree,
    limits: &'a UnpackLimits,
    privilege: Privilege,
    purpose: Purpose,
    meta: LayerMeta,
    implied: BTreeSet<TarPath>,
    /// Directories and their times, set in the end: making things inside changes them.
    dir_times: Vec<(TarPath, (i64, u32))>,
    dir_path_bytes: u64,
    buffer: Vec<u8>,
    room: Room,
}

impl<'a> LayerWriter<'a> {
    pub fn open(target: &Path, job: &UnpackJob<'a>, purpose: Purpose) -> Result<Self, UnpackError> {
        Ok(Self {
            tree: Tree::open(target, job.privilege)?,
            limits: job.limits,
            privilege: job.privilege,
            purpose,
            meta: LayerMeta {
                version: META_VERSION,
                ..LayerMeta::default()
            },
            implied: BTreeSet::new(),
            dir_times: Vec::new(),
            dir_path_bytes: 0,
            buffer: vec![0; COPY_BUFFER_BYTES],
            room: Room::of(target),
        })
    }

    #[cfg(test)]
    pub fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// Applies one entry; a file's data is read from the archive.
    pub fn apply<R: Read>(
        &mut self,
        entry: &TarEntry,
        archive: &mut TarReader<R>,
    ) -> Result<(), UnpackError> {
        self.meta.entries += 1;
        if self.meta.entries > self.limits.max_entries {
            return Err(UnpackError::TooLarge {
                kind: LimitKind::Entries,
                limit: self.limits.max_entries,
            });
        }
        if self.meta.entries % LOOK_AGAIN_ENTRIES == 1 {
            self.room.check_files(LOOK_AGAIN_ENTRIES)?;
        }
        let path = TarPath::parse(&entry.raw_path).map_err(|why| entry.refused(why))?;
        let Some((parent_path, name)) = path.split() else {
            return self.root(entry);
        };
        let parent = self.parent(entry, &parent_path)?;
        if self.purpose == Purpose::Layer && name.as_bytes().starts_with(WHITEOUT_PREFIX) {
            return self.whiteout(entry, &parent_path, &parent, name);
        }
        match &entry.kind {
            EntryKind::Directory => self.directory(entry, &path, &parent, name),
            EntryKind::File { parts } => self.file(entry, parts, &parent, name, archive),
            EntryKind::HardLink { target } => self.hard_link(entry, target, &path, &parent, name),
            EntryKind::SymbolicLink { target } => {
                self.make_way(entry, &parent, name)?;
                let made = symlinkat(OsStr::from_bytes(target), &parent, name);
                made.map_err(|error| self.failed("make the link", entry, error))?;
                self.set_attributes(entry, &parent, name)
            }
            EntryKind::CharacterDevice { major, minor } => {
                self.node(entry, &parent, name, FileType::CharacterDevice, (*major, *minor))
            }
            EntryKind::BlockDevice { major, minor } => {
                self.node(entry, &parent, name, FileType::BlockDevice, (*major, *minor))
            }
            EntryKind::Fifo => self.node(entry, &parent, name, FileType::Fifo, (0, 0)),
        }
    }

    /// Sets what had to wait for the last entry.
    pub fn finish(mut self) -> Result<LayerMeta, UnpackError> {
        for (path, time) in std::mem::take(&mut self.dir_times) {
            // A directory that a later entry replaced has no time to set.
            if let Ok(dir) = self.tree.open_dir(&path) {
                self.set_dir_time(&dir, &path, time)?;
            }
        }
        self.meta.implied_dirs = self.implied.iter().filter_map(TarPath::to_text).collect();
        Ok(self.meta)
    }

    fn root(&mut self, entry: &TarEntry) -> Result<(), UnpackError> {
        if entry.kind != EntryKind::Directory {
            return Err(entry.refused(EntryRefusal::RootNotDirectory));
        }
        let root = self.open_known_dir(entry, &TarPath::parse(b".").map_err(|why| entry.refused(why))?)?;
        self.set_attributes(entry, &root, OsStr::new("."))?;
        self.meta.root = Some(DirAttributes {
            mode: entry.mode & 0o7777,
            uid: entry.uid,
            gid: entry.gid,
        });
        Ok(())
    }

    /// The directory that an entry goes into, made if the archive has no entry for it.
    fn parent(&mut self, entry: &TarEntry, path: &TarPath) -> Result<OwnedFd, UnpackError> {
        match self.tree.open_dir(path) {
            Ok(dir) => Ok(dir),
            Err(Errno::NOENT | Errno::NOTDIR) => self.make_parents(entry, path),
            Err(error) => Err(self.unreachable(entry, error)),
        }
    }

    fn make_parents(&mut self, entry: &TarEntry, path: &TarPath) -> Result<OwnedFd, UnpackError> {
        for prefix in path.prefixes() {
            match self.tree.open_dir(&prefix) {
                Ok(_) => continue,
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => return Err(self.unreachable(entry, error)),
            }
            let Some((above, name)) = prefix.split() else {
                continue;
            };
            let dir = self.open_known_dir(entry, &above)?;
            let present = self.tree.present(&dir, name);
            match present.map_err(|error| self.failed("look at the parent of", entry, error))? {
                Present::Nothing => {}
                Present::Whiteout => self.remove(entry, &dir, name, Present::Whiteout)?,
                // A link to nowhere, or a file where a directory should be.
                Present::Directory | Present::Other => {
                    return Err(entry.refused(EntryRefusal::ParentNotDirectory));
                }
            }
            let made = self.tree.make_implied(&dir, name);
            made.map_err(|error| self.failed("make the parent of", entry, error))?;
            if present == Ok(Present::Whiteout) {
                self.opaque(entry, &dir, name)?;
            }
            self.count_dir_path(&prefix)?;
            self.implied.insert(prefix);
        }
        self.open_known_dir(entry, path)
    }

    fn directory(
        &mut self,
        entry: &TarEntry,
        path: &TarPath,
        parent: &OwnedFd,
        name: &OsStr,
    ) -> Result<(), UnpackError> {
        let present = self.look(entry, parent, name)?;
        if present != Present::Directory {
            self.remove(entry, parent, name, present)?;
            let made = mkdirat(parent, name, Mode::RWXU);
            made.map_err(|error| self.failed("make the directory", entry, error))?;
        }
        if present == Present::Whiteout {
            // Deleted and made anew by the same layer: what was below must not shine through.
            self.opaque(entry, parent, name)?;
        }
        self.implied.remove(path);
        self.set_attributes(entry, parent, name)?;
        self.count_dir_path(path)?;
        self.dir_times.push((path.clone(), entry.mtime));
        Ok(())
    }

    fn file<R: Read>(
        &mut self,
        entry: &TarEntry,
        parts: &FileParts,
        parent: &OwnedFd,
        name: &OsStr,
        archive: &mut TarReader<R>,
    ) -> Result<(), UnpackError> {
        let total = self.meta.size_bytes.saturating_add(parts.size_bytes);
        let limit = self.limits.max_layer_bytes;
        if total > limit {
            return Err(UnpackError::TooLarge {
                kind: LimitKind::Bytes,
                limit,
            });
        }
        self.meta.size_bytes = total;
        let data = parts.data.iter().map(|(_, length)| *length);
        self.room.check(data.fold(0, u64::saturating_add))?;
        self.make_way(entry, parent, name)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(parent, name, flags, NEW_FILE_MODE);
        let mut file = File::from(file.map_err(|error| self.failed("make the file", entry, error))?);
        let mut position = 0;
        for (offset, length) in &parts.data {
            if *offset != position {
                let moved = file.seek(SeekFrom::Start(*offset));
                moved.map_err(|error| self.failed_io("write", entry, error))?;
            }
            self.copy(entry, archive, &mut file, *length)?;
            position = offset + length;
        }
        if position != parts.size_bytes {
            let sized = file.set_len(parts.size_bytes);
            sized.map_err(|error| self.failed_io("write", entry, error))?;
        }
        self.set_attributes(entry, parent, name)
    }

    fn copy<R: Read>(
        &mut self,
        entry: &TarEntry,
        archive: &mut TarReader<R>,
        file: &mut File,
        length: u64,
    ) -> Result<(), UnpackError> {
        let mut left = length;
        let mut unlooked = 0;
        while left > 0 {
            if unlooked >= LOOK_AGAIN_BYTES {
                // Others write to the same disk.
                self.room.check(left)?;
                unlooked = 0;
            }
            let wanted = self.buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = archive.read_data(&mut self.buffer[..wanted])?;
            if count == 0 {
                return Err(UnpackError::reading(io::ErrorKind::UnexpectedEof.into()));
            }
            file.write_all(&self.buffer[..count])
                .map_err(|error| self.failed_io("write", entry, error))?;
            left -= count as u64;
            unlooked += count as u64;
        }
        Ok(())
    }

    fn hard_link(
        &mut self,
        entry: &TarEntry,
        target: &[u8],
        path: &TarPath,
        parent: &OwnedFd,
        name: &OsStr,
    ) -> Result<(), UnpackError> {
        let outside = |_| entry.refused(EntryRefusal::HardLinkOutside);
        let target = TarPath::parse(target).map_err(outside)?;
        let Some((target_parent, target_name)) = target.split() else {
            return Err(entry.refused(EntryRefusal::HardLinkToDirectory));
        };
        let missing = || entry.refused(EntryRefusal::HardLinkMissing);
        let target_dir = match self.tree.open_dir(&target_parent) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(missing()),
            Err(Errno::XDEV | Errno::LOOP) => return Err(outside(EntryRefusal::ThroughLink)),
            Err(error) => return Err(self.failed("find the target of", entry, error)),
        };
        match self.look(entry, &target_dir, target_name)? {
            Present::Nothing => return Err(missing()),
            Present::Directory => return Err(entry.refused(EntryRefusal::HardLinkToDirectory)),
            Present::Whiteout | Present::Other => {}
        }
        if target == *path {
            return Ok(());
        }
        self.make_way(entry, parent, name)?;
        match linkat(&target_dir, target_name, parent, name, AtFlags::empty()) {
            Ok(()) => Ok(()),
            // The target was what stood in the way, under another name.
            Err(Errno::NOENT) => Err(missing()),
            Err(error) => Err(self.failed("link", entry, error)),
        }
    }

    fn node(
        &mut self,
        entry: &TarEntry,
        parent: &OwnedFd,
        name: &OsStr,
        kind: FileType,
        (major, minor): (u32, u32),
    ) -> Result<(), UnpackError> {
        if self.purpose == Purpose::Folder && kind != FileType::Fifo {
            return Err(entry.refused(EntryRefusal::Device));
        }
        self.make_way(entry, parent, name)?;
        if self.privilege == Privilege::BestEffort && kind != FileType::Fifo {
            return Ok(());
        }
        let made = mknodat(parent, name, kind, NEW_FILE_MODE, makedev(major, minor));
        made.map_err(|error| self.failed("make the device", entry, error))?;
        self.set_attributes(entry, parent, name)
    }

    fn whiteout(
        &mut self,
        entry: &TarEntry,
        parent_path: &TarPath,
        parent: &OwnedFd,
        name: &OsStr,
    ) -> Result<(), UnpackError> {
        if name.as_bytes() == OPAQUE_NAME {
            if parent_path.is_root() {
                // Overlayfs merges roots whatever they say; the stack is cut when it is mounted.
                self.meta.opaque_root = true;
            }
            return self.opaque(entry, parent, OsStr::new("."));
        }
        if name.as_bytes().starts_with(WHITEOUT_META_PREFIX) {
            return Ok(());
        }
        let hidden = OsStr::from_bytes(&name.as_bytes()[WHITEOUT_PREFIX.len()..]);
        if matches!(hidden.as_bytes(), b"" | b"." | b"..") {
            return Err(entry.refused(EntryRefusal::WhiteoutName));
        }
        // A whiteout speaks of the layers below, never of what this layer itself brings.
        match self.look(entry, parent, hidden)? {
            Present::Directory => self.opaque(entry, parent, hidden),
            Present::Whiteout | Present::Other => Ok(()),
            Present::Nothing => {
                let made = self.tree.make_whiteout(parent, hidden);
                made.map_err(|error| self.failed("make the whiteout", entry, error))
            }
        }
    }

    fn opaque(&self, entry: &TarEntry, dir: &OwnedFd, name: &OsStr) -> Result<(), UnpackError> {
        let made = self.tree.make_opaque(dir, name);
        made.map_err(|error| self.failed("make opaque the directory of", entry, error))
    }

    fn look(&self, entry: &TarEntry, dir: &OwnedFd, name: &OsStr) -> Result<Present, UnpackError> {
        self.tree
            .present(dir, name)
            .map_err(|error| self.failed("look at", entry, error))
    }

    /// Removes what stands at the name of a new entry that is no directory.
    fn make_way(&self, entry: &TarEntry, dir: &OwnedFd, name: &OsStr) -> Result<(), UnpackError> {
        let present = self.look(entry, dir, name)?;
        self.remove(entry, dir, name, present)
    }

    fn remove(
        &self,
        entry: &TarEntry,
        dir: &OwnedFd,
        name: &OsStr,
        present: Present,
    ) -> Result<(), UnpackError> {
        self.tree
            .remove(dir, name, present)
            .map_err(|error| self.failed_io("replace", entry, error))
    }

    fn open_known_dir(&self, entry: &TarEntry, path: &TarPath) -> Result<OwnedFd, UnpackError> {
        self.tree
            .open_dir(path)
            .map_err(|error| self.unreachable(entry, error))
    }

    fn count_dir_path(&mut self, path: &TarPath) -> Result<(), UnpackError> {
        self.dir_path_bytes += path.len_bytes() as u64;
        if self.dir_path_bytes > MAX_DIR_PATH_BYTES {
            return Err(UnpackError::TooLarge {
                kind: LimitKind::PathBytes,
                limit: MAX_DIR_PATH_BYTES,
            });
        }
        Ok(())
    }

    fn unreachable(&self, entry: &TarEntry, error: Errno) -> UnpackError {
        match parent_refusal(error) {
            Some(why) => entry.refused(why),
            None => self.failed("reach the parent of", entry, error),
        }
    }

    fn failed(&self, doing: &'static str, entry: &TarEntry, error: Errno) -> UnpackError {
        self.failed_io(doing, entry, error.into())
    }

    fn failed_io(&self, doing: &'static str, entry: &TarEntry, error: io::Error) -> UnpackError {
        match StoreError::io(doing, self.tree.path(), error) {
            full @ (StoreError::DiskFull { .. } | StoreError::NoRoom { .. } | StoreError::NoFiles { .. }) => {
                UnpackError::Store(full)
            }
            StoreError::Io { source, .. } => UnpackError::Entry {
                doing,
                entry: entry.display_name(),
                source,
            },
            damaged @ StoreError::Damaged { .. } => UnpackError::Store(damaged),
        }
    }

    fn set_dir_time(&self, dir: &OwnedFd, path: &TarPath, time: (i64, u32)) -> Result<(), UnpackError> {
        attributes::set_time(dir, OsStr::new("."), time).map_err(|error| UnpackError::Entry {
            doing: "set the time of",
            entry: path.as_path().display().to_string(),
            source: Arc::new(error.into()),
        })
    }
}
