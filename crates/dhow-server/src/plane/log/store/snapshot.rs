//! Snapshots: the state as of one index, in a file of its own beside the log.
//!
//! A snapshot is streamed in and out in chunks, each with a checksum, and closed by a footer over the whole,
//! so that a file that was cut or changed is never taken for a snapshot. It gets its name only when it is
//! complete and durable. Called by the log on a blocking thread; it must never touch the segments.

mod form;
mod reader;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use reader::SnapshotReader;
pub use writer::SnapshotWriter;

use super::damage::What;
use super::disk::Disk;
use super::error::{Action, StoreError};
use super::identity::StoreId;
use super::limits::KEPT_SNAPSHOTS;
use super::listing::Listing;
use super::lock::DirLock;
use super::record::LogPosition;

const PREFIX: &str = "snapshot-";

/// The index of a snapshot, from a file name; `None` for a file that is none.
pub(super) fn index_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// The path of the snapshot at this index.
pub(super) fn path_of(dir: &Path, index: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{index:020}"))
}

/// What was found when the snapshots of a directory were read from beginning to end.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// The newest one.
    pub newest: Option<LogPosition>,
    /// What is wrong with an older one.
    pub older_damage: Option<StoreError>,
}

/// The snapshots of one store.
#[derive(Debug)]
pub struct Snapshots {
    inner: Arc<SnapshotsState>,
}

/// The directory of the snapshots, for all clones and for those that are being written.
#[derive(Debug)]
pub(super) struct SnapshotsState {
    dir: PathBuf,
    store: StoreId,
    disk: Disk,
    /// Makes the passing names of snapshots that are written at the same time differ.
    passing: AtomicU64,
    /// Held while a snapshot gets its name and older ones are deleted.
    naming: Mutex<()>,
    /// A snapshot that is still being written keeps other processes out too.
    _lock: Arc<DirLock>,
}

impl Snapshots {
    pub(super) fn new(dir: PathBuf, store: StoreId, disk: Disk, lock: Arc<DirLock>) -> Self {
        let inner = SnapshotsState {
            dir,
            store,
            disk,
            passing: AtomicU64::new(0),
            naming: Mutex::new(()),
            _lock: lock,
        };
        Snapshots {
            inner: Arc::new(inner),
        }
    }

    /// The identity of the store that they belong to.
    pub(super) fn store_id(&self) -> StoreId {
        self.inner.store
    }

    /// Begins a snapshot of the state after the entry at this position.
    pub fn create(&self, at: LogPosition) -> Result<SnapshotWriter, StoreError> {
        SnapshotWriter::create(Arc::clone(&self.inner), at)
    }

    /// Opens the newest snapshot.
    pub fn newest(&self) -> Result<Option<SnapshotReader>, StoreError> {
        match list(&self.inner.dir)?.last() {
            Some(index) => self.inner.open(*index).map(Some),
            None => Ok(None),
        }
    }

    /// Position of the oldest snapshot that is kept once [`KEPT_SNAPSHOTS`] are there: the log may be purged up
    /// to here, and every kept snapshot can still be followed by the log.
    pub fn purgeable(&self) -> Result<Option<LogPosition>, StoreError> {
        let indexes = list(&self.inner.dir)?;
        match indexes.len().checked_sub(KEPT_SNAPSHOTS) {
            Some(at) => Ok(Some(self.inner.open(indexes[at])?.position())),
            None => Ok(None),
        }
    }

    /// Reads every snapshot to its end. A damaged newest one is refused; `log_first` is the first index that
    /// the log holds, for the hint.
    pub(super) fn verify(&self, log_first: u64) -> Result<Verified, StoreError> {
        let mut verified = Verified::default();
        let indexes = list(&self.inner.dir)?;
        for (age, index) in indexes.iter().rev().enumerate() {
            let outcome = self
                .inner
                .open(*index)
                .and_then(|mut reader| reader.verify_rest());
            match (age, outcome) {
                (0, Ok(position)) => verified.newest = Some(position),
                (0, Err(error)) => {
                    let older = indexes
                        .iter()
                        .rev()
                        .skip(1)
                        .copied()
                        .find(|index| self.inner.is_sound(*index));
                    return Err(advise(error, older, log_first));
                }
                (_, Ok(_)) => {}
                (_, Err(error)) => verified.older_damage = Some(error),
            }
        }
        Ok(verified)
    }
}

impl SnapshotsState {
    fn open(&self, index: u64) -> Result<SnapshotReader, StoreError> {
        SnapshotReader::open(&path_of(&self.dir, index), &self.store, index)
    }

    fn is_sound(&self, index: u64) -> bool {
        self.open(index)
            .and_then(|mut reader| reader.verify_rest())
            .is_ok()
    }

    fn passing_path(&self, index: u64) -> PathBuf {
        let number = self.passing.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("{PREFIX}{index:020}.{number}.tmp"))
    }

    /// Gives a complete snapshot its name and deletes those beyond the ones that are kept.
    fn put_in_force(&self, passing: &Path, index: u64) -> Result<(), StoreError> {
        // The lock guards no data, so a holder that panicked left nothing half done.
        let _naming = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        let path = path_of(&self.dir, index);
        self.disk
            .rename(&self.dir, passing, &path)
            .map_err(|error| StoreError::making(Action::Rename, &path, 0, error))?;
        let indexes = list(&self.dir)?;
        let surplus = indexes.len().saturating_sub(KEPT_SNAPSHOTS);
        let paths: Vec<_> = indexes[..surplus]
            .iter()
            .map(|index| path_of(&self.dir, *index))
            .collect();
        if let Err(error) = super::repair::remove_all(&self.disk, &self.dir, &paths) {
            // The new snapshot is in force all the same; the next one tries again.
            tracing::warn!(%error, "an old snapshot could not be deleted");
        }
        Ok(())
    }
}

/// Indexes of the snapshots in a directory, ascending.
fn list(dir: &Path) -> Result<Vec<u64>, StoreError> {
    Ok(Listing::read(dir)?.snapshots.into_iter().collect())
}

/// Tells what can be done about a damaged newest snapshot: the log may reach back to the one before it, but
/// that is for a person to decide.
fn advise(error: StoreError, older: Option<u64>, log_first: u64) -> StoreError {
    let StoreError::Damaged {
        file, offset, what, ..
    } = error
    else {
        return error;
    };
    let reaches = |index: u64| log_first <= index.saturating_add(1);
    let hint = match older {
        _ if log_first <= 1 => {
            "Nothing was changed. The log still holds every entry: move this file away and \
                                start again, and the state is made anew from the log"
                .to_owned()
        }
        Some(index) if reaches(index) => format!(
            "Nothing was changed. The log still reaches back to the snapshot before it, at {index}: move this file \
             away and start again"
        ),
        Some(_) | None => {
            "Nothing was changed. The log does not reach back to a sound snapshot: restore the \
                           directory from a backup; on a member of a cluster, move it away and join again"
                .to_owned()
        }
    };
    StoreError::Damaged {
        file,
        offset,
        what,
        hint,
    }
}

/// Damage of a snapshot, before anything is known of the other files.
pub(super) fn damaged_snapshot(path: &Path, offset: u64, what: What) -> StoreError {
    let hint =
        "Nothing was changed. Restart the daemon, which looks for another way to the same state".to_owned();
    StoreError::Damaged {
        file: path.to_owned(),
        offset,
        what,
        hint,
    }
}
