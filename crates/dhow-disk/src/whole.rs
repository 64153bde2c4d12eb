//! Files by their paths, written whole.

use std::io;
use std::path::Path;

use crate::{Dir, Outlives};

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
