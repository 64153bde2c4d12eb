//! What is known of a volume, in a file beside it, and the lock under which it changes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use dhow_disk::{Outlives, replace};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{OWN, VolumeError};

/// How far a volume's first content has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Content {
    /// Nothing was put into it yet.
    #[default]
    None,
    /// What the image has is copied beside it and is being moved in.
    Moving,
    /// What is in it is its own, also where that is nothing.
    Own,
}

/// What a node keeps of one volume beside its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(default)]
    pub created_unix_secs: Option<i64>,
    /// When a replica last began with it, or ended.
    #[serde(default)]
    pub used_unix_secs: Option<i64>,
    #[serde(default)]
    pub content: Content,
    /// How much may be in it.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
    /// What its file system counts it by, where it has a limit.
    #[serde(default)]
    pub project: Option<u32>,
}

/// A volume's folder with what stands beside it.
#[derive(Clone, Debug)]
pub(super) struct VolumeFolder {
    pub folder: PathBuf,
    parent: PathBuf,
    name: String,
}

/// Held while a volume is made, filled or exchanged.
#[derive(Debug)]
pub(super) struct VolumeLock {
    _file: File,
}

impl VolumeFolder {
    pub fn of(folder: &Path) -> Result<Self, VolumeError> {
        let bad = || VolumeError::BadName(folder.display().to_string());
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(bad)?;
        Ok(Self {
            parent: folder.parent().ok_or_else(bad)?.to_owned(),
            name: name.to_owned(),
            folder: folder.to_owned(),
        })
    }

    pub fn parent(&self) -> &Path {
        &self.parent
    }

    fn beside(&self, what: &str) -> PathBuf {
        self.parent.join(format!("{OWN}{}.{what}", self.name))
    }

    /// Where the image's content is copied before it is moved in.
    pub fn filling(&self) -> PathBuf {
        self.beside("filling")
    }

    /// Where an archive is unpacked before it takes the volume's place.
    pub fn restoring(&self) -> PathBuf {
        self.beside("restoring")
    }

    /// Where what is to go waits for its removal.
    pub fn going(&self) -> PathBuf {
        self.beside("going")
    }

    pub fn record_path(&self) -> PathBuf {
        self.beside("json")
    }

    fn lock_path(&self) -> PathBuf {
        self.beside("lock")
    }

    /// Waits for whoever holds it.
    pub fn lock(&self) -> Result<VolumeLock, VolumeError> {
        let path = self.lock_path();
        let failed = || VolumeError::file("locking the volume at", &path);
        loop {
            let opened = fs::OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path);
            let file = opened.map_err(failed())?;
            flock(&file, FlockOperation::LockExclusive).map_err(|error| failed()(error.into()))?;
            // Whoever held it may have removed the volume, and the file with it.
            if is_at(&file, &path).map_err(failed())? {
                return Ok(VolumeLock { _file: file });
            }
        }
    }

    /// What is known of it; nothing of a volume that is older than records, or whose record is damaged.
    pub fn record(&self) -> Result<Record, VolumeError> {
        let path = self.record_path();
        match fs::read(&path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Record::default()),
            Err(error) => Err(VolumeError::file("reading", &path)(error)),
        }
    }

    pub fn keep(&self, record: &Record) -> Result<(), VolumeError> {
        let path = self.record_path();
        // Numbers and words can always be written.
        let bytes = serde_json::to_vec(record).unwrap_or_default();
        replace(&path, &bytes, Outlives::PowerCut).map_err(VolumeError::file("writing", &path))
    }

    /// Removes the record and the lock, which are the last of a volume.
    pub fn forget(&self) -> Result<(), VolumeError> {
        for path in [self.record_path(), self.lock_path()] {
            match fs::remove_file(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(VolumeError::file("removing", &path)(error)),
            }
        }
        Ok(())
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let held = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a folder with all in it; that there is none is fine.
pub(super) fn remove_folder(path: &Path) -> Result<(), VolumeError> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(VolumeError::file("removing", path)(error)),
    }
}

pub(super) fn is_empty(folder: &Path) -> Result<bool, VolumeError> {
    let mut entries = fs::read_dir(folder).map_err(VolumeError::file("looking into", folder))?;
    Ok(entries.next().is_none())
}

pub(super) fn now_unix_secs() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
