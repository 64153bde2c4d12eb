//! Whether something fits the disk. Images come last: a disk that they fill has no room for the cluster's log and
//! for what replicas write.

use std::io;
use std::path::{Path, PathBuf};

use super::store::StoreError;

/// Of a disk this part is not for images, ...
const KEPT_PART: u64 = 20;
/// ... and no more than this.
const KEPT_MAX_BYTES: u64 = 1 << 30;
/// The same of the files that it can have.
const KEPT_MAX_FILES: u64 = 1 << 16;
/// What a directory, or a long name in one, takes at least on most disks.
const BLOCK_BYTES: u64 = 4096;

/// The disk below a folder.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    dir: PathBuf,
}

impl Room {
    pub fn of(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// An error where this many bytes more would not fit. Blocks, for microseconds.
    pub fn check(&self, needed_bytes: u64) -> Result<(), StoreError> {
        let spare_bytes = self
            .spare_bytes()
            .map_err(|error| StoreError::io("look at the disk of", &self.dir, error))?;
        if needed_bytes <= spare_bytes {
            return Ok(());
        }
        Err(StoreError::NoRoom {
            path: self.dir.clone(),
            needed_bytes,
            spare_bytes,
        })
    }

    /// An error where this many files and folders more would not fit, whatever is in them. Blocks, for microseconds.
    pub fn check_files(&self, needed: u64) -> Result<(), StoreError> {
        self.check(needed.saturating_mul(BLOCK_BYTES))?;
        let found = rustix::fs::statvfs(&self.dir)
            .map_err(|error| StoreError::io("look at the disk of", &self.dir, error.into()))?;
        let spare_files = spare(found.f_files, found.f_favail, KEPT_MAX_FILES);
        if needed <= spare_files {
            return Ok(());
        }
        Err(StoreError::NoFiles {
            path: self.dir.clone(),
            spare_files,
        })
    }

    fn spare_bytes(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(&self.dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(spare(
            bytes(found.f_blocks),
            bytes(found.f_bavail),
            KEPT_MAX_BYTES,
        ))
    }
}

/// What images may take of a disk.
fn spare(total: u64, free: u64, kept_max: u64) -> u64 {
    if total == 0 {
        // Some file systems do not say how large they are: then only writing shows.
        return u64::MAX;
    }
    free.saturating_sub((total / KEPT_PART).min(kept_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_disk_is_not_for_images() {
        const MIB: u64 = 1 << 20;
        let spare = |total, free| spare(total, free, KEPT_MAX_BYTES);
        assert_eq!(spare(100 * MIB, 50 * MIB), 45 * MIB);
        assert_eq!(spare(100 * MIB, 4 * MIB), 0);
        assert_eq!(spare(1 << 40, 3 << 30), 2 << 30);
        assert_eq!(spare(0, 0), u64::MAX);
    }

    #[test]
    fn files_without_content_take_room_too() {
        assert_eq!(spare(3_000_000, 100_000, KEPT_MAX_FILES), 100_000 - 65_536);
        assert_eq!(spare(0, 0, KEPT_MAX_FILES), u64::MAX, "some count none");
        let dir = tempfile::tempdir().unwrap();
        let room = Room::of(dir.path());
        room.check_files(0).unwrap();
        room.check_files(u64::MAX).unwrap_err();
    }

    #[test]
    fn what_fits_nowhere_is_refused_with_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let room = Room::of(dir.path());
        room.check(0).unwrap();
        let refused = room.check(u64::MAX).unwrap_err();
        assert!(
            matches!(
                refused,
                StoreError::NoRoom {
                    needed_bytes: u64::MAX,
                    ..
                }
            ),
            "{refused}"
        );
    }
}
