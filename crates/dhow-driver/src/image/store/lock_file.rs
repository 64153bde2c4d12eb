//! A lock that excludes other threads and other processes and vanishes with its holder, however it ends.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Held until dropped; the file goes with it, so that locks leave nothing behind.
#[derive(Debug)]
pub(super) struct LockFile {
    path: PathBuf,
    /// Closing it releases the lock.
    _file: File,
}

impl LockFile {
    /// Waits for the lock. Blocks the thread.
    pub fn acquire(path: &Path) -> io::Result<Self> {
        loop {
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(path)?;
            match file.lock() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if is_at(&file, path)? {
                return Ok(Self {
                    path: path.to_owned(),
                    _file: file,
                });
            }
        }
    }

    /// Takes the lock if nobody holds it.
    pub fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(path)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, path)? => {
                    return Ok(Some(Self {
                        path: path.to_owned(),
                        _file: file,
                    }));
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Takes the lock of an existing file if nobody holds it. None while it is held, or if there is no file.
    pub fn try_existing(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::options().write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) if is_at(&file, path)? => Ok(Some(Self {
                path: path.to_owned(),
                _file: file,
            })),
            Ok(()) | Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Whether the path still names this file: a holder that left has removed it, and a lock on a file without a
/// name excludes nobody.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // While the lock is held the name is ours; a file that cannot be removed is only clutter.
        let _ = fs::remove_file(&self.path);
    }
}
