//! What the writer, the readers and the callers of a store have in common.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::cache::EntryCache;
use super::error::StoreError;
use super::lock::DirLock;
use super::options::StoreOptions;
use super::sector::SectorCodec;
use super::segment::Segment;
use super::state::LogState;

/// The log as readers see it: durable entries alone. Held for the length of a lookup, never across a system call.
#[derive(Debug)]
pub struct View {
    /// Bounds, values and slots.
    pub log: LogState,
    /// Recent entries.
    pub cache: EntryCache,
    /// Open segments by their first frame.
    pub segments: BTreeMap<u64, Segment>,
}

/// Counters for measurements and tests.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames written, which is also the number of fdatasyncs for commits.
    pub frames: AtomicU64,
    /// Entries appended.
    pub entries: AtomicU64,
    /// Segments begun.
    pub rotations: AtomicU64,
}

/// What the writer, the readers and the callers of one open store use together.
#[derive(Debug)]
pub struct OpenStore {
    /// The directory.
    pub dir: PathBuf,
    /// The options, with the segment size of the store on disk.
    pub options: StoreOptions,
    /// Checks sectors on reads.
    pub codec: SectorCodec,
    /// Why writing stopped, once it has.
    pub poison: OnceLock<Arc<StoreError>>,
    /// Requests that wait for the writer.
    pub queued_requests: AtomicUsize,
    /// Their encoded bytes.
    pub queued_bytes: AtomicUsize,
    /// Counters.
    pub counters: Counters,
    view: Mutex<View>,
    /// Given back when the writer has ended and the last handle is gone, whichever is later.
    _lock: Arc<DirLock>,
}

impl OpenStore {
    /// Puts the parts together.
    pub fn new(
        dir: PathBuf,
        options: StoreOptions,
        codec: SectorCodec,
        view: View,
        lock: Arc<DirLock>,
    ) -> Self {
        OpenStore {
            dir,
            options,
            codec,
            poison: OnceLock::new(),
            queued_requests: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            counters: Counters::default(),
            view: Mutex::new(view),
            _lock: lock,
        }
    }

    /// The log as it is now.
    pub fn view(&self) -> MutexGuard<'_, View> {
        // Only the writer changes the view, and it stops for ever when it panics: what readers then find is
        // the last state that was complete or a shorter one, never an entry that is not durable.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses when writing has stopped.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        match self.poison.get() {
            Some(cause) => Err(StoreError::Poisoned {
                cause: Arc::clone(cause),
            }),
            None => Ok(()),
        }
    }

    /// Takes a request out of the count of those that wait.
    pub fn dequeued(&self, size_bytes: usize) {
        self.queued_requests.fetch_sub(1, Ordering::Relaxed);
        self.queued_bytes.fetch_sub(size_bytes, Ordering::Relaxed);
    }
}
