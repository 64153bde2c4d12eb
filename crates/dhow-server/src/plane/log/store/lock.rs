//! One daemon for each directory: an exclusive lock that the kernel gives back when the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::error::{Action, StoreError};

/// Name of the file that is locked. It also holds the process id, for the message to the one who comes second.
const LOCK_FILE: &str = "LOCK";

/// Longest process id, with room to spare.
const MAX_PID_BYTES: u64 = 32;

/// The lock, held for as long as this value lives. It belongs to the open file, so a process that is forked and
/// does not exec shares it: such a process must close the descriptors it inherits, or a daemon that is killed
/// stays locked out.
#[derive(Debug)]
pub struct DirLock {
    file: File,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing would leave the lock with a child between fork and exec; unlocking ends it for everybody.
        let _ = self.file.unlock();
    }
}

impl DirLock {
    /// Takes the lock, or says who has it.
    pub fn take(dir: &Path) -> Result<DirLock, StoreError> {
        let path = dir.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| StoreError::io(Action::Open, &path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked {
                    dir: dir.to_owned(),
                    holder: read_holder(&mut file),
                });
            }
            Err(TryLockError::Error(error)) => return Err(StoreError::io(Action::Lock, &path, error)),
        }
        // The id only makes a later message better; a full disk must not keep the log from being opened. The
        // width is fixed so that a shorter id covers a longer one without truncating the file, which is slow.
        let _ = file.write_all_at(format!("{:>10}\n", std::process::id()).as_bytes(), 0);
        Ok(DirLock { file })
    }
}

fn read_holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(MAX_PID_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
