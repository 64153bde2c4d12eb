//! The directory of all state: made for its owner alone, and held by one daemon at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context;
use rustix::fs::FlockOperation;

/// Held for as long as the daemon lives; the kernel lets go of it when the process ends, however it does.
pub struct DataDir {
    _lock: File,
}

impl DataDir {
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(dir)
            .with_context(|| format!("the data directory {} cannot be made", dir.display()))?;
        let path = dir.join("daemon.lock");
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut lock = options
            .open(&path)
            .with_context(|| format!("the lock file {} cannot be opened", path.display()))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            let _ = lock.read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => String::new(),
                pid => format!(" (process {pid})"),
            };
            anyhow::bail!(
                "another daemon{holder} runs on {}: stop it, or give --data-dir to use another directory",
                dir.display()
            );
        }
        // Only for the message above.
        let _ = lock.set_len(0);
        let _ = lock.rewind();
        let _ = writeln!(lock, "{}", std::process::id());
        Ok(Self { _lock: lock })
    }
}
