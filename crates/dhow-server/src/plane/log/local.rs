//! The log of a single node: what is durable is committed, and this node always leads.
//!
//! Indexes begin at 1. Each opening is a new term, so that what was planned before a restart is known to be old.
//! Called by the reducer through [`Log`].

use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::store::{
    Batch, Entry, LogPosition, Op, Recovery, SegmentStore, SnapshotReader, SnapshotWriter, StoreError,
    StoreOptions,
};
use super::{Leadership, Log, LogEvent, LogStatus, ProposalId, ProposeError};

/// The id of the only node.
pub const LOCAL_NODE_ID: u64 = 1;

/// Events that may wait for the reducer, and so proposals that may be on their way: a proposal takes its place
/// when it is made. As many as the store's queue holds, and one for the first event.
pub const MAX_EVENTS: usize = super::store::limits::MAX_QUEUED_REQUESTS + 1;

/// The single-node log; clones are handles of the same one.
#[derive(Debug, Clone)]
pub struct LocalLog {
    store: SegmentStore,
    events: mpsc::Sender<LogEvent>,
    term: u64,
}

/// A log that was opened.
#[derive(Debug)]
pub struct OpenedLog {
    /// The log.
    pub log: LocalLog,
    /// What it tells; leadership comes first. Entries that were committed before are not repeated here, they
    /// are read.
    pub events: mpsc::Receiver<LogEvent>,
    /// What was found on disk.
    pub recovery: Recovery,
}

/// Makes a new directory of a log whose state is the one that `state` yields, and whose terms follow on from this one.
/// Blocks the thread.
pub fn seed(
    dir: &Path,
    options: StoreOptions,
    term: u64,
    state: &mut dyn std::io::Read,
) -> Result<(), SeedError> {
    let (store, recovery) = SegmentStore::open(dir, options)?;
    if !recovery.created {
        return Err(SeedError::NotEmpty { dir: dir.to_owned() });
    }
    let mut writer = store.snapshots().create(LogPosition { index: 1, term })?;
    std::io::copy(state, &mut writer).map_err(SeedError::State)?;
    Ok(store.install(writer)?)
}

/// Why a directory was not begun from a state.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    #[error("there is a log in {} already; move it away first", dir.display())]
    NotEmpty { dir: PathBuf },
    #[error("the state cannot be written")]
    State(#[source] std::io::Error),
    #[error("the log cannot be written")]
    Store(#[from] StoreError),
}

impl OpenedLog {
    /// Leads in a term above this one, which the state has: a log that an older version began from a backup counts its
    /// terms anew. To be called before anything was taken from `events`.
    pub fn lead_above(&mut self, term: u64) {
        if self.log.term > term {
            return;
        }
        self.log.term = term.saturating_add(1);
        // Takes back the event about the lower term.
        let _ = self.events.try_recv();
        let _ = self
            .log
            .events
            .try_send(LogEvent::Leadership(self.log.leadership()));
    }
}

impl LocalLog {
    /// Opens the log in a directory of its own. Blocks the thread.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<OpenedLog, StoreError> {
        let options = StoreOptions {
            purged_needs_snapshot: true,
            ..options
        };
        let (store, recovery) = SegmentStore::open(dir, options)?;
        let bounds = store.bounds();
        if bounds.last.is_none() && bounds.purged.is_none() {
            // Index 0 stands for "nothing yet" wherever an index is shown, so no entry has it.
            store.commit(Batch::of(Op::Purge(LogPosition { index: 0, term: 0 })))?;
        }
        let last_term = bounds.last.map_or(0, |last| last.term);
        let term = last_term
            .max(recovery.snapshot.map_or(0, |at| at.term))
            .saturating_add(1);
        let (sender, events) = mpsc::channel(MAX_EVENTS);
        let log = LocalLog {
            store,
            events: sender,
            term,
        };
        // The channel is new and has room; a receiver that is dropped at once is the caller's wish.
        let _ = log.events.try_send(LogEvent::Leadership(log.leadership()));
        Ok(OpenedLog {
            log,
            events,
            recovery,
        })
    }

    /// The store below, for measurements.
    pub fn store(&self) -> &SegmentStore {
        &self.store
    }

    fn leadership(&self) -> Leadership {
        Leadership {
            term: self.term,
            leader: Some(LOCAL_NODE_ID),
            is_here: true,
        }
    }

    /// A place in the channel to the reducer, for the event that is sure to come.
    fn place(&self) -> Result<mpsc::OwnedPermit<LogEvent>, StoreError> {
        self.events
            .clone()
            .try_reserve_owned()
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => StoreError::Busy {
                    requests: MAX_EVENTS,
                    size_bytes: 0,
                },
                mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
            })
    }
}

impl Log for LocalLog {
    fn propose(&self, id: ProposalId, entries: Vec<Bytes>) -> Result<(), ProposeError> {
        // The place in the channel is taken now, so that the writer never waits for the reducer.
        let place = self.place()?;
        let term = self.term;
        let ops = entries
            .iter()
            .map(|payload| Op::AppendNext {
                term,
                payload: payload.clone(),
            })
            .collect();
        let done = Box::new(move |result: Result<super::store::Ack, StoreError>| {
            place.send(match result {
                Ok(ack) => {
                    let entries = (ack.first_index..).zip(entries);
                    let entries = entries.map(|(index, payload)| Entry { index, term, payload });
                    LogEvent::committed(Some(id), entries.collect())
                }
                Err(error) => LogEvent::Refused {
                    proposal: id,
                    cause: error.into(),
                },
            });
        });
        Ok(self.store.submit(Batch::new(ops), done)?)
    }

    fn status(&self) -> LogStatus {
        let bounds = self.store.bounds();
        LogStatus {
            leadership: self.leadership(),
            first_index: bounds.first_index,
            committed_index: bounds.next_index.saturating_sub(1),
        }
    }

    fn read(&self, from: u64, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        self.store.read(from..u64::MAX, max_bytes)
    }

    fn newest_snapshot(&self) -> Result<Option<SnapshotReader>, StoreError> {
        self.store.snapshots().newest()
    }

    fn begin_snapshot(&self, at: LogPosition) -> Result<SnapshotWriter, StoreError> {
        self.store.snapshots().create(at)
    }

    fn compact(&self, snapshot: SnapshotWriter) -> Result<(), StoreError> {
        let (at, next_index) = (snapshot.position(), self.store.bounds().next_index);
        if at.index >= next_index {
            return Err(StoreError::NotNext {
                expected: next_index,
                got: at.index,
            });
        }
        snapshot.finish()?;
        match self.store.snapshots().purgeable()? {
            Some(at) => self.store.commit(Batch::of(Op::Purge(at))).map(drop),
            None => Ok(()),
        }
    }

    fn install(&self, snapshot: SnapshotWriter) -> Result<(), StoreError> {
        let place = self.place()?;
        let at = snapshot.position();
        self.store.install(snapshot)?;
        place.send(LogEvent::SnapshotInstalled { at });
        Ok(())
    }

    fn barrier(&self) -> BoxFuture<'_, Result<u64, ProposeError>> {
        Box::pin(std::future::ready(Ok(self.status().committed_index)))
    }
}
