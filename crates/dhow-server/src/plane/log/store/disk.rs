//! The few file operations the store is made of, each of which a test can make fail.
//!
//! Every change of the disk goes through here, so that a test can refuse or hold up exactly one step. In
//! production there is no hook and each call is a plain system call.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use super::limits::ZERO_RUN_BYTES;

/// The operations that change the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskOp {
    /// A file is made and its room reserved.
    Allocate,
    /// Bytes are written.
    Write,
    /// A file is made durable.
    Sync,
    /// A file gets its name.
    Rename,
    /// The names in a directory are made durable.
    SyncDir,
    /// A file is deleted.
    Remove,
}

/// Called before each operation; an error stands in for the operating system's.
pub type DiskHook = Arc<dyn Fn(DiskOp, &Path) -> io::Result<()> + Send + Sync>;

/// The disk as the store sees it.
#[derive(Clone, Default)]
pub struct Disk {
    hook: Option<DiskHook>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("hooked", &self.hook.is_some())
            .finish()
    }
}

impl Disk {
    /// A disk whose operations a test can refuse or hold up.
    pub fn with_hook(hook: DiskHook) -> Self {
        Disk { hook: Some(hook) }
    }

    fn before(&self, op: DiskOp, path: &Path) -> io::Result<()> {
        match &self.hook {
            Some(hook) => hook(op, path),
            None => Ok(()),
        }
    }

    /// Makes a file of zeros that are really written and durable: a later fdatasync then has no metadata to
    /// write, and cannot find the disk full. A file that could not be finished is removed again.
    pub(super) fn create_zeroed(&self, path: &Path, size_bytes: u64) -> io::Result<File> {
        let made = self
            .before(DiskOp::Allocate, path)
            .and_then(|()| self.fill_new(path, size_bytes));
        if made.is_err() {
            // The first error is the one worth telling; a leftover is removed when the store is opened.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn fill_new(&self, path: &Path, size_bytes: u64) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, size_bytes as nix::libc::off_t) {
            // Reserving first finds a full disk at once and keeps the file in one piece; a file system that
            // cannot do it gets the zeros alone.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.write_zeros(&file, path, 0, size_bytes)?;
        self.before(DiskOp::Sync, path)?;
        file.sync_all()?;
        Ok(file)
    }

    /// Writes zeros over a part of a file.
    pub(super) fn write_zeros(&self, file: &File, path: &Path, from: u64, to: u64) -> io::Result<()> {
        self.before(DiskOp::Write, path)?;
        let zeros = vec![0u8; ZERO_RUN_BYTES];
        let mut at = from;
        while at < to {
            let run = usize::try_from(to - at).map_or(ZERO_RUN_BYTES, |left| left.min(ZERO_RUN_BYTES));
            file.write_all_at(&zeros[..run], at)?;
            at += run as u64;
        }
        Ok(())
    }

    /// Writes bytes at a place of a file.
    pub(super) fn write_at(&self, file: &File, path: &Path, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.before(DiskOp::Write, path)?;
        file.write_all_at(bytes, offset)
    }

    /// Makes a file's bytes durable.
    pub(super) fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
        self.before(DiskOp::Sync, path)?;
        file.sync_data()
    }

    /// Writes a small file under a passing name and makes it durable.
    pub(super) fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.before(DiskOp::Allocate, path)?;
        let file = File::create(path)?;
        self.write_at(&file, path, bytes, 0)?;
        self.before(DiskOp::Sync, path)?;
        file.sync_all()
    }

    /// Makes an empty file under a passing name.
    pub(super) fn create_empty(&self, path: &Path) -> io::Result<File> {
        self.before(DiskOp::Allocate, path)?;
        File::create(path)
    }

    /// Gives a file another name, and makes that durable.
    pub(super) fn rename(&self, dir: &Path, from: &Path, to: &Path) -> io::Result<()> {
        self.before(DiskOp::Rename, to)?;
        std::fs::rename(from, to)?;
        self.sync_dir(dir)
    }

    /// Makes the names in a directory durable.
    pub(super) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.before(DiskOp::SyncDir, dir)?;
        File::open(dir)?.sync_all()
    }

    /// Deletes a file. One that is gone already is as good.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        self.before(DiskOp::Remove, path)?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
