//! File operations of the store: whole or not at all, and durable when they return.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dhow_disk::Outlives;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::clock;
use super::super::digest::Digest;
use super::error::StoreError;

/// A download that nobody took up for this long is not worth its space.
const PARTIAL_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Turns an I/O result into one that names the file and what was being done.
pub(crate) trait Failing<T> {
    fn failing(self, doing: &'static str, path: &Path) -> Result<T, StoreError>;
}

impl<T> Failing<T> for io::Result<T> {
    fn failing(self, doing: &'static str, path: &Path) -> Result<T, StoreError> {
        self.map_err(|error| StoreError::io(doing, path, error))
    }
}

/// Distinguishes the temporary files of one session.
static NEXT_TMP: AtomicU64 = AtomicU64::new(0);

/// Replaces a file, durably.
pub(super) fn write_atomically(path: &Path, bytes: &[u8], tmp_dir: &Path) -> Result<(), StoreError> {
    dhow_disk::replace_through(&tmp_path(tmp_dir), path, bytes, Outlives::PowerCut).failing("write", path)
}

/// Replaces a file that may be lost with the host's power.
pub(super) fn replace(path: &Path, bytes: &[u8], tmp_dir: &Path) -> Result<(), StoreError> {
    dhow_disk::replace_through(&tmp_path(tmp_dir), path, bytes, Outlives::Process).failing("write", path)
}

fn tmp_path(tmp_dir: &Path) -> PathBuf {
    tmp_dir.join(format!("file-{}", NEXT_TMP.fetch_add(1, Ordering::Relaxed)))
}

pub(super) fn replace_json(path: &Path, value: &impl Serialize, tmp_dir: &Path) -> Result<(), StoreError> {
    let bytes = serde_json::to_vec(value)
        .map_err(io::Error::from)
        .failing("write", path)?;
    replace(path, &bytes, tmp_dir)
}

pub(super) fn sync_file_system(path: &Path) -> Result<(), StoreError> {
    let dir = File::open(path).failing("open", path)?;
    rustix::fs::syncfs(&dir)
        .map_err(io::Error::from)
        .failing("sync", path)
}

pub(super) fn write_json(path: &Path, value: &impl Serialize, tmp_dir: &Path) -> Result<(), StoreError> {
    let bytes = serde_json::to_vec_pretty(value)
        .map_err(io::Error::from)
        .failing("write", path)?;
    write_atomically(path, &bytes, tmp_dir)
}

pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    let Some(bytes) = read_limited(path, super::MAX_OWN_FILE_BYTES)? else {
        return Ok(None);
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| StoreError::Damaged {
            path: path.to_owned(),
            detail: error.to_string(),
        })
}

/// Reads a file that may be absent, up to a limit.
pub(super) fn read_limited(path: &Path, max_bytes: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io("open", path, error)),
    };
    let mut bytes = Vec::new();
    let read = file
        .take(max_bytes + 1)
        .read_to_end(&mut bytes)
        .failing("read", path)?;
    if read as u64 > max_bytes {
        let detail = format!("it is larger than {max_bytes} bytes");
        return Err(StoreError::Damaged {
            path: path.to_owned(),
            detail,
        });
    }
    Ok(Some(bytes))
}

pub(super) fn remove_if_present(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes a directory and all below it, never following a link; absence is fine.
pub(crate) fn remove_tree(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The digests that name entries of a directory; other names are not ours and are left alone.
pub(super) fn digests_in(dir: &Path, prefix: &str, suffix: &str) -> Result<Vec<Digest>, StoreError> {
    let mut digests = Vec::new();
    for entry in fs::read_dir(dir).failing("list", dir)? {
        let name = entry.failing("list", dir)?.file_name();
        let hex = name
            .to_str()
            .and_then(|name| name.strip_prefix(prefix)?.strip_suffix(suffix));
        digests.extend(hex.and_then(Digest::from_hex));
    }
    digests.sort_unstable();
    Ok(digests)
}

/// Removes downloads that were given up long ago. One that is under way is younger than that.
pub(super) fn clean_old_partials(dir: &Path) -> Result<(), StoreError> {
    let now = clock::now();
    for entry in fs::read_dir(dir).failing("list", dir)? {
        let entry = entry.failing("list", dir)?;
        let modified = entry.metadata().and_then(|meta| meta.modified());
        let age = modified
            .ok()
            .and_then(|modified| now.duration_since(modified).ok());
        if age.is_some_and(|age| age > PARTIAL_KEPT) {
            remove_if_present(&entry.path())?;
        }
    }
    Ok(())
}

/// The kernel's name for the time since it was started; a new one every time where it cannot be read.
pub(super) fn boot_id() -> String {
    let read = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map_or_else(
        |_| format!("{:032x}", rand::random::<u128>()),
        |id| id.trim().to_owned(),
    )
}
