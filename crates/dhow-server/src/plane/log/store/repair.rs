//! Brings a directory that was found sound into the state the writer goes on from.
//!
//! Called once, when a store is opened, after everything was judged. When it returns, all that was read is
//! durable: what a process wrote before it was killed may have been in memory alone.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::disk::Disk;
use super::error::{Action, StoreError};
use super::recovery::Loaded;
use super::segment::Segment;

/// Removes the remains of an unfinished write and of unfinished steps, and makes what is left durable.
pub fn repair(disk: &Disk, dir: &Path, loaded: &Loaded) -> Result<(), StoreError> {
    if let Some(segment) = loaded.segments.get(&loaded.manifest.last_segment) {
        remove_torn(disk, loaded, segment)?;
        write_last_frame_again(disk, loaded, segment)?;
        disk.sync(&segment.file, &segment.path)
            .map_err(|error| StoreError::io(Action::Sync, &segment.path, error))?;
    }
    // The names that were found, above all the manifest's, must not go back to what they were.
    disk.sync_dir(dir)
        .map_err(|error| StoreError::io(Action::Sync, dir, error))?;
    remove_all(disk, dir, &loaded.leftovers)
}

fn remove_torn(disk: &Disk, loaded: &Loaded, segment: &Segment) -> Result<(), StoreError> {
    let Some(repair) = &loaded.repair else {
        return Ok(());
    };
    let end = if repair.was_short {
        loaded.manifest.segment_size_bytes
    } else {
        repair.offset + repair.torn_bytes
    };
    disk.write_zeros(&segment.file, &segment.path, repair.offset, end)
        .map_err(|error| StoreError::making(Action::Write, &segment.path, end - repair.offset, error))
}

/// After a failed fsync the kernel keeps the pages but calls them clean: the last frame can then be read, and
/// no later fsync writes it. Writing the same bytes again makes the next fsync count. Only the last frame can
/// be concerned, because nothing is written after a failure.
fn write_last_frame_again(disk: &Disk, loaded: &Loaded, segment: &Segment) -> Result<(), StoreError> {
    let Some(range) = &loaded.last_frame else {
        return Ok(());
    };
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let path = &segment.path;
    segment
        .file
        .read_exact_at(&mut bytes, range.start)
        .map_err(|error| StoreError::io(Action::Read, path, error))?;
    disk.write_at(&segment.file, path, &bytes, range.start)
        .map_err(|error| StoreError::io(Action::Write, path, error))
}

/// Deletes files and makes that durable.
pub fn remove_all(disk: &Disk, dir: &Path, paths: &[PathBuf]) -> Result<(), StoreError> {
    if paths.is_empty() {
        return Ok(());
    }
    for path in paths {
        disk.remove(path)
            .map_err(|error| StoreError::io(Action::Remove, path, error))?;
    }
    disk.sync_dir(dir)
        .map_err(|error| StoreError::io(Action::Sync, dir, error))
}
