//! The durable store under the log: segments of checksummed frames, and snapshots beside them.
//!
//! It holds bytes by index and never looks into them. The single-node log and the raft log both stand on it,
//! so that there is one thing to trust. What it promises: an acknowledged batch is on disk; an unfinished last
//! write is removed when the store is opened, and reported; anything else that is not as it was written is
//! refused with the file and the place, and nothing is changed. The form on disk is described in
//! `docs/log-format.md`.
//!
//! Called by the local, the copied and the raft log; reads block, so async callers put them on a blocking thread.

mod batch;
mod cache;
mod damage;
mod disk;
mod error;
mod frame;
mod group;
mod identity;
pub mod limits;
mod listing;
mod lock;
mod manifest;
mod open_store;
mod options;
mod reader;
mod record;
mod recovery;
mod repair;
mod scan;
mod sector;
mod segment;
mod snapshot;
mod spare;
mod start;
mod state;
mod writer;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;

pub use batch::{Ack, Batch, Done, Op};
pub use damage::What;
pub use disk::{Disk, DiskHook, DiskOp};
pub use error::{Action, StoreError, TooLarge};
pub use identity::StoreId;
pub use options::StoreOptions;
pub use record::{Entry, LogPosition, MetaKey};
pub use recovery::{Recovery, Repair};
pub use snapshot::{SnapshotReader, SnapshotWriter, Snapshots};

use batch::Request;
use limits::{MAX_QUEUED_BYTES, MAX_QUEUED_REQUESTS};
use open_store::OpenStore;

/// A handle of an open store; clones are cheap. The store closes when the last one is dropped, after what was
/// queued has been written.
#[derive(Debug, Clone)]
pub struct SegmentStore {
    inner: Arc<StoreParts>,
}

/// What the store counted since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreStats {
    /// Frames written: one write and one fdatasync each.
    pub frames: u64,
    /// Entries appended.
    pub entries: u64,
    /// Segments begun.
    pub rotations: u64,
}

/// The bounds of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBounds {
    /// First index that can be read.
    pub first_index: u64,
    /// Index of the next entry.
    pub next_index: u64,
    /// The last position that was purged.
    pub purged: Option<LogPosition>,
    /// The last entry, or what was purged last where the log is empty.
    pub last: Option<LogPosition>,
}

/// What the clones of a store share: the writer ends with the last of them.
#[derive(Debug)]
struct StoreParts {
    shared: Arc<OpenStore>,
    snapshots: Snapshots,
    /// Taken when the store closes, which ends the writer.
    sender: Option<SyncSender<Request>>,
    writer: Option<JoinHandle<()>>,
}

impl SegmentStore {
    /// Opens the store in a directory, or makes one where there is none, and says what was found. One process
    /// at a time has a directory.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<(SegmentStore, Recovery), StoreError> {
        start::open(dir, options)
    }

    /// Hands a batch to the writer without waiting. `done` is called on the writer's thread once the batch is
    /// durable or has failed; it must not block. When this returns an error, `done` is never called.
    pub fn submit(&self, batch: Batch, done: Done) -> Result<(), StoreError> {
        let shared = &self.inner.shared;
        shared.check_writable()?;
        let size_bytes = batch.checked_bytes(&shared.options)?;
        let sender = self.inner.sender.as_ref().ok_or(StoreError::Closed)?;
        let requests = shared.queued_requests.fetch_add(1, Ordering::Relaxed);
        let queued = shared.queued_bytes.fetch_add(size_bytes, Ordering::Relaxed);
        if queued.saturating_add(size_bytes) > MAX_QUEUED_BYTES {
            shared.dequeued(size_bytes);
            return Err(StoreError::Busy {
                requests,
                size_bytes: queued,
            });
        }
        sender
            .try_send(Request {
                ops: batch.into_ops(),
                size_bytes,
                done,
            })
            .map_err(|error| {
                shared.dequeued(size_bytes);
                match error {
                    TrySendError::Full(_) => StoreError::Busy {
                        requests,
                        size_bytes: queued,
                    },
                    TrySendError::Disconnected(_) => StoreError::Closed,
                }
            })
    }

    /// Hands a batch to the writer and waits until it is durable. Blocks the thread.
    pub fn commit(&self, batch: Batch) -> Result<Ack, StoreError> {
        // One place: the writer answers once.
        let (answer, outcome) = sync_channel(1);
        self.submit(
            batch,
            Box::new(move |result| {
                // A caller that went away does not want to know.
                let _ = answer.send(result);
            }),
        )?;
        outcome.recv().unwrap_or(Err(StoreError::Closed))
    }

    /// Durable entries of a range, as many as fit into `max_bytes`, but one where there is one. What lies beyond
    /// the end is left out. Blocks the thread where the entries are no longer in memory.
    pub fn read(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        reader::read(&self.inner.shared, range, max_bytes)
    }

    /// The same, but from memory alone; none where an entry of the range would have to be read from the disk.
    pub fn read_cached(&self, range: Range<u64>, max_bytes: usize) -> Option<Vec<Entry>> {
        reader::read_cached(&self.inner.shared, range, max_bytes)
    }

    /// The identity that the store was given when it was made.
    pub fn id(&self) -> StoreId {
        self.inner.snapshots.store_id()
    }

    /// The bounds of the durable log.
    pub fn bounds(&self) -> LogBounds {
        let view = self.inner.shared.view();
        let bounds = view.log.bounds;
        LogBounds {
            first_index: bounds.first_index(),
            next_index: bounds.next_index,
            purged: bounds.purged,
            last: view.log.last(),
        }
    }

    /// The durable value of a metadata key.
    pub fn meta(&self, key: MetaKey) -> Option<Bytes> {
        self.inner.shared.view().log.metas.get(&key).cloned()
    }

    /// The snapshots beside the log.
    pub fn snapshots(&self) -> &Snapshots {
        &self.inner.snapshots
    }

    /// Finishes a snapshot that came from elsewhere and lets the log go on after it. Where the snapshot reaches
    /// beyond the log, the log notes that first, so that a crash between the two steps is finished and not
    /// taken for damage. Blocks the thread.
    pub fn install(&self, snapshot: SnapshotWriter) -> Result<(), StoreError> {
        let at = snapshot.position();
        if at.index >= self.bounds().next_index {
            self.commit(Batch::of(Op::Meta {
                key: MetaKey::Install,
                value: at.to_meta(),
            }))?;
        }
        snapshot.finish()?;
        self.commit(Batch::of(Op::Purge(at))).map(drop)
    }

    /// What was counted since the store was opened.
    pub fn stats(&self) -> StoreStats {
        let counters = &self.inner.shared.counters;
        StoreStats {
            frames: counters.frames.load(Ordering::Relaxed),
            entries: counters.entries.load(Ordering::Relaxed),
            rotations: counters.rotations.load(Ordering::Relaxed),
        }
    }
}

impl StoreParts {
    fn queue() -> (SyncSender<Request>, std::sync::mpsc::Receiver<Request>) {
        sync_channel(MAX_QUEUED_REQUESTS)
    }
}

impl Drop for StoreParts {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(writer) = self.writer.take()
            // The last handle may be dropped inside an answer, on the writer's own thread.
            && writer.thread().id() != std::thread::current().id()
        {
            // A writer that panicked has already stopped; there is nothing left to end.
            let _ = writer.join();
        }
    }
}
