//! Small files that are replaced as a whole: the one way in which Dhow writes what must outlive a power cut, and in
//! which it reads such a file back without ever losing it.
//!
//! Called by every crate that keeps something on disk, except the log's store, which has segments of its own, syncs
//! them by itself and injects faults before each of its steps. Everything here blocks. It never follows a link where
//! it writes, never leaves half a file under the name that was asked for, and never puts anything in the place of a
//! file that it could not read.

mod dir;
mod kept;

use std::io;
use std::path::Path;

pub use dir::{Dir, Outlives};
pub use kept::{Kept, read_or_set_aside, set_aside};

/// Replaces a file, readable for its owner alone. A reader sees the old or the new one, never half.
pub fn replace(path: &Path, bytes: &[u8], outlives: Outlives) -> io::Result<()> {
    let (dir, name) = Dir::of(path)?;
    dir.replace(&name, bytes, outlives)
}

/// Makes a file that must not exist yet, whole and durable, readable for its owner alone.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (dir, name) = Dir::of(path)?;
    dir.create(&name, bytes)
}

/// The same as [`replace`] for a directory in which every name counts: what is not whole yet has its name elsewhere in
/// the same file system.
pub fn replace_through(passing: &Path, path: &Path, bytes: &[u8], outlives: Outlives) -> io::Result<()> {
    let (dir, name) = Dir::of(passing)?;
    dir.write_new(&name, bytes, outlives)?;
    if let Err(error) = std::fs::rename(passing, path) {
        // The first error is the one to tell.
        let _ = dir.remove(&name);
        return Err(error);
    }
    match outlives {
        Outlives::PowerCut => Dir::of(path)?.0.sync(),
        Outlives::Process => Ok(()),
    }
}
