//! Reads a directory of manifests within its limits, and never follows a link.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dhow_wire::manifest::{
    FILE_BYTES_MAX, FILES_MAX, INDEX_BYTES_MAX, INDEX_NAME, ReceivedSet, SET_BYTES_MAX, SIGNATURE_NAME,
    SIGNATURE_TEXT_BYTES_MAX,
};
use nix::fcntl::OFlag;

/// Folders inside folders of a set. Paths have at most 255 characters, and a reader must end.
const DEPTH_MAX: usize = 16;

/// Why a directory of manifests could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadSetError {
    #[error("cannot read {path}", path = path.display())]
    Io {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("{path} is neither a plain file nor a folder; a set holds nothing else", path = path.display())]
    NotAFile { path: PathBuf },
    #[error("{path} has no name that can be written in an index", path = path.display())]
    Unnameable { path: PathBuf },
    #[error("{path} lies deeper than {DEPTH_MAX} folders", path = path.display())]
    TooDeep { path: PathBuf },
    #[error("the set has more than {FILES_MAX} files or {SET_BYTES_MAX} bytes; split it")]
    TooLarge,
}

fn cannot(path: &Path) -> impl FnOnce(io::Error) -> ReadSetError {
    let path = path.to_owned();
    move |cause| ReadSetError::Io { path, cause }
}

/// The index and its signature alone.
pub(super) fn read_index(dir: &Path) -> Result<ReceivedSet, ReadSetError> {
    Ok(ReceivedSet {
        index: read_file(&dir.join(INDEX_NAME), INDEX_BYTES_MAX as u64)?,
        signature: read_file(&dir.join(SIGNATURE_NAME), SIGNATURE_TEXT_BYTES_MAX as u64)?,
        ..ReceivedSet::default()
    })
}

/// Every file below the directory that a set may hold, by its path in the index's form.
pub fn read_manifest_files(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>, ReadSetError> {
    read_set(dir, ReceivedSet::default()).map(|set| set.files)
}

/// Every other file below the directory, added to the set.
pub(super) fn read_set(dir: &Path, mut set: ReceivedSet) -> Result<ReceivedSet, ReadSetError> {
    let mut total_bytes = 0;
    walk(dir, &mut |name, path| {
        let bytes = read_file(&path, FILE_BYTES_MAX)?;
        total_bytes += bytes.len() as u64;
        set.files.insert(name, bytes);
        match set.files.len() > FILES_MAX || total_bytes > SET_BYTES_MAX {
            true => Err(ReadSetError::TooLarge),
            false => Ok(()),
        }
    })?;
    Ok(set)
}

/// What changes where a file is written, comes or goes; nothing is read. For comparisons within one process alone.
pub(super) fn stamp(dir: &Path) -> Result<u64, ReadSetError> {
    let mut files = BTreeMap::new();
    walk(dir, &mut |name, path| {
        let found = std::fs::symlink_metadata(&path).map_err(cannot(&path))?;
        let modified = (found.mtime(), found.mtime_nsec());
        let changed = (found.ctime(), found.ctime_nsec());
        files.insert(name, (found.ino(), found.len(), modified, changed));
        match files.len() > FILES_MAX {
            true => Err(ReadSetError::TooLarge),
            false => Ok(()),
        }
    })?;
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    Ok(hasher.finish())
}

type Visit<'a> = dyn FnMut(String, PathBuf) -> Result<(), ReadSetError> + 'a;

/// Visits every file but the index and its signature. What begins with a dot cannot stand in an index, so it belongs to
/// the tools that brought the set and is passed over.
fn walk(dir: &Path, visit: &mut Visit<'_>) -> Result<(), ReadSetError> {
    let mut folders = vec![(dir.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(cannot(&folder))? {
            let entry = entry.map_err(cannot(&folder))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(cannot(&path))?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let Some(name) = entry.file_name().to_str().map(|name| format!("{prefix}{name}")) else {
                return Err(ReadSetError::Unnameable { path });
            };
            if kind.is_dir() {
                if depth == DEPTH_MAX {
                    return Err(ReadSetError::TooDeep { path });
                }
                folders.push((path, format!("{name}/"), depth + 1));
            } else if name != INDEX_NAME && name != SIGNATURE_NAME {
                visit(name, path)?;
            }
        }
    }
    Ok(())
}

/// Reads one byte more than the limit, so that what is too large is seen to be.
fn read_file(path: &Path, max_bytes: u64) -> Result<Vec<u8>, ReadSetError> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    file.take(max_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot(path))?;
    Ok(bytes)
}

/// Opens a plain file: a link is refused, and a pipe does not hold the reader up.
fn open(path: &Path) -> Result<File, ReadSetError> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
        .map_err(cannot(path))?;
    if file.metadata().map_err(cannot(path))?.is_file() {
        Ok(file)
    } else {
        Err(ReadSetError::NotAFile {
            path: path.to_owned(),
        })
    }
}
