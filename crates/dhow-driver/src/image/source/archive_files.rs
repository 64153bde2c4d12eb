//! Random access to the files of a tar archive, by one pass over its headers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::image::unpack::LayerInput;

/// Files in one archive: a thousand layers with three files each fit many times over.
const MAX_FILES: usize = 65_536;
/// Links from one name to the next before it is a circle.
const MAX_LINKS: usize = 16;

/// The files of a tar archive, by name.
pub(super) struct ArchiveFiles {
    path: PathBuf,
    /// Kept open, so that a temporary copy may lose its name at once.
    file: Arc<File>,
    entries: BTreeMap<PathBuf, ArchiveEntry>,
}

/// Where the bytes of a file are in the archive, or the file that it is a link to.
enum ArchiveEntry {
    Data { offset: u64, size_bytes: u64 },
    Link(PathBuf),
}

impl ArchiveFiles {
    /// Reads the headers. `path` is what messages name.
    pub fn scan(path: &Path, file: File) -> io::Result<Self> {
        let file = Arc::new(file);
        let mut archive = tar::Archive::new(At {
            file: Arc::clone(&file),
            position: 0,
        });
        let mut entries = BTreeMap::new();
        for entry in archive.entries_with_seek()? {
            let entry = entry?;
            if entries.len() >= MAX_FILES {
                return Err(io::Error::other(format!("it holds more than {MAX_FILES} files")));
            }
            let name = normalised(&entry.path()?);
            let kind = entry.header().entry_type();
            if kind.is_symlink() || kind.is_hard_link() {
                let target = entry.link_name()?.unwrap_or_default().into_owned();
                let base = if kind.is_symlink() {
                    name.parent().unwrap_or(Path::new(""))
                } else {
                    Path::new("")
                };
                entries.insert(name.clone(), ArchiveEntry::Link(normalised(&base.join(target))));
            } else if kind.is_file() {
                let place = ArchiveEntry::Data {
                    offset: entry.raw_file_position(),
                    size_bytes: entry.size(),
                };
                entries.insert(name, place);
            }
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            entries,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub fn open(&self, name: &str) -> io::Result<(LayerInput, u64)> {
        let (offset, size_bytes) = self.find(name).ok_or(io::ErrorKind::NotFound)?;
        let at = At {
            file: Arc::clone(&self.file),
            position: offset,
        };
        Ok((Box::new(at.take(size_bytes)), size_bytes))
    }

    fn find(&self, name: &str) -> Option<(u64, u64)> {
        let mut name = normalised(Path::new(name));
        for _ in 0..MAX_LINKS {
            match self.entries.get(&name)? {
                ArchiveEntry::Data { offset, size_bytes } => return Some((*offset, *size_bytes)),
                ArchiveEntry::Link(target) => name = target.clone(),
            }
        }
        None
    }
}

/// Without `.` and with `..` taken back: the result is only a key, never a path on the host.
fn normalised(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(part) => clean.push(part),
            std::path::Component::ParentDir => {
                clean.pop();
            }
            std::path::Component::CurDir
            | std::path::Component::RootDir
            | std::path::Component::Prefix(_) => {}
        }
    }
    clean
}

/// A reader with a position of its own in a shared file.
struct At {
    file: Arc<File>,
    position: u64,
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = std::os::unix::fs::FileExt::read_at(&*self.file, buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for At {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let moved = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
        };
        self.position = moved.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
