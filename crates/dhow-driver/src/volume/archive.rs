//! Writes a volume as a tar stream: owners, modes, times, extended attributes, links. It holds one file's part in memory
//! at a time. A volume that is in use is taken as each file is when its turn comes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use tar::{Builder, EntryType, Header};

use super::copy::{attributes, open_regular};
use super::{VolumeError, Volumes};

/// Files with several names that are known again: 64 MiB of paths. Beyond that each name brings its content.
const LINKS_MAX: usize = 1 << 19;
const BUFFER_BYTES: usize = 128 << 10;

impl Volumes {
    /// Writes the volume's content. What goes while it is read is left out; sockets and devices are too.
    pub fn archive(&self, deployment: &str, name: &str, output: impl Write) -> Result<(), VolumeError> {
        let folder = self.path(deployment, name)?;
        if !folder.is_dir() {
            return Err(VolumeError::NotHere(format!("{deployment}/{name}")));
        }
        let mut writer = Archive {
            builder: Builder::new(output),
            linked: BTreeMap::new(),
        };
        writer.folder(&folder).map_err(VolumeError::Write)?;
        writer.builder.finish().map_err(VolumeError::Write)?;
        let mut output = writer.builder.into_inner().map_err(VolumeError::Write)?;
        output.flush().map_err(VolumeError::Write)
    }
}

struct Archive<W: Write> {
    builder: Builder<W>,
    /// Where a file with several names stands in the archive.
    linked: BTreeMap<(u64, u64), PathBuf>,
}

impl<W: Write> Archive<W> {
    fn folder(&mut self, root: &Path) -> io::Result<()> {
        self.entry(root, Path::new("."), &fs::symlink_metadata(root)?)?;
        let mut waiting = vec![PathBuf::new()];
        while let Some(folder) = waiting.pop() {
            let entries = match fs::read_dir(root.join(&folder)) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let inside = folder.join(entry?.file_name());
                let path = root.join(&inside);
                let found = match fs::symlink_metadata(&path) {
                    Ok(found) => found,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                self.entry(&path, &inside, &found)?;
                if found.is_dir() {
                    waiting.push(inside);
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, inside: &Path, found: &Metadata) -> io::Result<()> {
        let kind = FileType::from_raw_mode(found.mode());
        let mut header = header_of(found);
        match kind {
            FileType::Directory => header.set_entry_type(EntryType::Directory),
            FileType::Fifo => header.set_entry_type(EntryType::Fifo),
            FileType::Symlink => {
                header.set_entry_type(EntryType::Symlink);
                self.attributes(path)?;
                let target = fs::read_link(path)?;
                return self.builder.append_link(&mut header, inside, target);
            }
            FileType::RegularFile => return self.file(path, inside, header),
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Socket | FileType::Unknown => {
                return Ok(());
            }
        }
        self.attributes(path)?;
        self.builder.append_data(&mut header, inside, io::empty())
    }

    fn file(&mut self, path: &Path, inside: &Path, mut header: Header) -> io::Result<()> {
        let file = match open_regular(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let found = file.metadata()?;
        let key = (found.dev(), found.ino());
        if found.nlink() > 1 {
            if let Some(first) = self.linked.get(&key) {
                header.set_entry_type(EntryType::Link);
                return self.builder.append_link(&mut header, inside, first);
            }
            if self.linked.len() < LINKS_MAX {
                self.linked.insert(key, inside.to_owned());
            }
        }
        header.set_entry_type(EntryType::Regular);
        header.set_size(found.size());
        self.attributes(path)?;
        let data = Exactly {
            file: io::BufReader::with_capacity(BUFFER_BYTES, file),
            left: found.size(),
        };
        self.builder.append_data(&mut header, inside, data)
    }

    /// Extended attributes stand before the entry, in the form that other programs read too.
    fn attributes(&mut self, path: &Path) -> io::Result<()> {
        let found = attributes(path)?;
        if found.is_empty() {
            return Ok(());
        }
        let keys: Vec<(String, Vec<u8>)> = found
            .into_iter()
            .map(|(name, value)| {
                (
                    format!("SCHILY.xattr.{}", OsStr::from_bytes(&name).to_string_lossy()),
                    value,
                )
            })
            .collect();
        self.builder
            .append_pax_extensions(keys.iter().map(|(key, value)| (key.as_str(), value.as_slice())))
    }
}

fn header_of(found: &Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(found.mode() & 0o7777);
    header.set_uid(found.uid().into());
    header.set_gid(found.gid().into());
    // Before 1970 there were no volumes.
    header.set_mtime(u64::try_from(found.mtime()).unwrap_or(0));
    header.set_size(0);
    header
}

/// As many bytes as were promised, whatever becomes of the file: what it grows by is left out, what it loses is zeros.
struct Exactly<R> {
    file: R,
    left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = match self.file.read(&mut buffer[..wanted])? {
            0 => {
                buffer[..wanted].fill(0);
                wanted
            }
            count => count,
        };
        self.left -= count as u64;
        Ok(count)
    }
}
