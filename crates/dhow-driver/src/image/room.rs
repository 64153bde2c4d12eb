//! Whether something fits the disk. Images come last: a disk that they fill has no room for the cluster's log and
//! for what replicas write.

use std::io;
use std::path::{Path, PathBuf};

use super::store::StoreError;

/// Of a disk this part is not for images, ...
const KEPT_PART: u64 = 20;
/// ... and no more than this.
const KEPT_MAX_BYTES: u64 = 1 << 30;

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

    fn spare_bytes(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(&self.dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(spare(bytes(found.f_blocks), bytes(found.f_bavail)))
    }
}

/// What images may take of a disk.
fn spare(total_bytes: u64, free_bytes: u64) -> u64 {
    if total_bytes == 0 {
        // Some file systems do not say how large they are: then only writing shows.
        return u64::MAX;
    }
    free_bytes.saturating_sub((total_bytes / KEPT_PART).min(KEPT_MAX_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_disk_is_not_for_images() {
        const MIB: u64 = 1 << 20;
        assert_eq!(spare(100 * MIB, 50 * MIB), 45 * MIB);
        assert_eq!(spare(100 * MIB, 4 * MIB), 0);
        assert_eq!(spare(1 << 40, 3 << 30), 2 << 30);
        assert_eq!(spare(0, 0), u64::MAX);
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
