//! Whether the disk of the data directory has room.

use std::path::{Path, PathBuf};

use dhow_wire::ProblemCode;
use nix::sys::statvfs::statvfs;

use super::problem::{Answer, ApiProblem};

/// Less is a full disk: the next batch of the log or of the nodes' events, 512 KiB, and its neighbours would not fit.
const FREE_BYTES_MIN: u64 = 1024 * 1024;

/// Says no where nothing more can be written. A directory that cannot be looked at says nothing about its disk.
pub(super) async fn check(data_dir: Option<&PathBuf>) -> Answer<()> {
    let Some(dir) = data_dir.cloned() else {
        return Ok(());
    };
    let looked = tokio::task::spawn_blocking(move || full(&dir)).await;
    match looked.ok().flatten() {
        Some(why) => Err(ApiProblem::new(ProblemCode::DiskFull, why)),
        None => Ok(()),
    }
}

/// Why nothing more fits, where that is so. Blocks for a moment.
fn full(dir: &Path) -> Option<String> {
    let found = statvfs(dir).ok()?;
    // What is set aside for root is of use to root alone.
    let blocks = match nix::unistd::Uid::effective().is_root() {
        true => found.blocks_free(),
        false => found.blocks_available(),
    };
    let free_bytes = blocks.saturating_mul(found.fragment_size());
    let no_files = found.files() > 0 && found.files_free() == 0;
    let what = match (free_bytes < FREE_BYTES_MIN, no_files) {
        (true, _) => format!("{free_bytes} bytes are free"),
        (false, true) => "no more files fit on it".to_owned(),
        (false, false) => return None,
    };
    Some(format!(
        "the disk of {} is full ({what}): replicas do not start, and soon nothing is written; free some space",
        dir.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_room_is_fine_and_one_without_says_so() {
        assert_eq!(full(Path::new("/nowhere/at/all")), None);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(full(dir.path()), None);
        // A file system without any room of its own.
        let why = full(Path::new("/proc")).unwrap_or_default();
        assert!(why.contains("is full") && why.contains("/proc"), "{why}");
    }
}
