//! A log that keeps nothing: what is proposed is committed at once, and gone when the process ends. For a cluster
//! whose state need not outlive it, and for tests.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::limits::IN_FLIGHT_MAX;
use crate::plane::log::local::LOCAL_NODE_ID;
use crate::plane::log::store::{Entry, LogPosition, SnapshotReader, SnapshotWriter, StoreError};
use crate::plane::log::{Leadership, Log, LogEvent, LogStatus, ProposalId, ProposeError};

/// The one term that such a log has.
const TERM: u64 = 1;

/// A log in memory: the runtime uses it where its options have none.
#[derive(Debug)]
pub struct VolatileLog {
    events: mpsc::Sender<LogEvent>,
    last_index: Mutex<u64>,
    leadership: Leadership,
}

impl VolatileLog {
    /// A log that goes on after this index, and what it tells.
    pub fn new(last_index: u64) -> (Self, mpsc::Receiver<LogEvent>) {
        // One event for each proposal, and one for the leadership.
        let (events, receiver) = mpsc::channel(IN_FLIGHT_MAX + 1);
        let leadership = Leadership {
            term: TERM,
            leader: Some(LOCAL_NODE_ID),
            is_here: true,
        };
        // The channel is new and has room.
        let _ = events.try_send(LogEvent::Leadership(leadership));
        let log = Self {
            events,
            last_index: Mutex::new(last_index),
            leadership,
        };
        (log, receiver)
    }

    fn keeps_nothing<T>() -> Result<T, StoreError> {
        Err(StoreError::BadOptions {
            why: "a log in memory keeps no snapshots".to_owned(),
        })
    }
}

impl Log for VolatileLog {
    fn propose(&self, id: ProposalId, entries: Vec<Bytes>) -> Result<(), ProposeError> {
        // Held until the event is sent, so that events come in the order of their indexes. The number is
        // written last, so a holder that panicked left it right.
        let mut last_index = self.last_index.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *last_index + 1;
        let count = entries.len() as u64;
        let entries = (first..)
            .zip(entries)
            .map(|(index, payload)| Entry {
                index,
                term: TERM,
                payload,
            })
            .collect();
        let event = LogEvent::committed(Some(id), entries);
        self.events.try_send(event).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ProposeError::Full,
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed.into(),
        })?;
        *last_index += count;
        Ok(())
    }

    fn status(&self) -> LogStatus {
        let last = *self.last_index.lock().unwrap_or_else(PoisonError::into_inner);
        LogStatus {
            leadership: self.leadership,
            first_index: last + 1,
            committed_index: last,
        }
    }

    fn read(&self, _from: u64, _max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        Ok(Vec::new())
    }

    fn newest_snapshot(&self) -> Result<Option<SnapshotReader>, StoreError> {
        Ok(None)
    }

    fn begin_snapshot(&self, _at: LogPosition) -> Result<SnapshotWriter, StoreError> {
        Self::keeps_nothing()
    }

    fn compact(&self, _snapshot: SnapshotWriter) -> Result<(), StoreError> {
        Self::keeps_nothing()
    }

    fn install(&self, _snapshot: SnapshotWriter) -> Result<(), StoreError> {
        Self::keeps_nothing()
    }

    fn barrier(&self) -> BoxFuture<'_, Result<u64, ProposeError>> {
        Box::pin(std::future::ready(Ok(self.status().committed_index)))
    }
}
