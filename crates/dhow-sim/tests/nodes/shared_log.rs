//! A log that several servers share in memory: what the leader proposes is committed on all at once.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dhow_server::plane::log::store::{Entry, LogPosition, SnapshotReader, SnapshotWriter, StoreError};
use dhow_server::plane::log::{Leadership, Log, LogEvent, LogStatus, ProposalId, ProposeError};
use dhow_server::plane::runtime::RuntimeLog;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

/// More than any test writes.
const EVENTS_MAX: usize = 16_384;

struct SharedLogState {
    servers: Vec<mpsc::Sender<LogEvent>>,
    last_index: u64,
    term: u64,
    /// From 1 on.
    leader: Option<u64>,
}

/// The log of all servers of a test, for which the test chooses the leader; clones are the same log.
#[derive(Clone)]
pub struct SharedLog {
    inner: Arc<Mutex<SharedLogState>>,
}

struct ServerLog {
    shared: SharedLog,
    id: u64,
}

impl SharedLog {
    /// A log for so many servers, with ids from 1 on. Nobody leads.
    pub fn new(count: usize) -> (Self, Vec<RuntimeLog>) {
        let (servers, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel(EVENTS_MAX)).unzip();
        let shared = Self {
            inner: Arc::new(Mutex::new(SharedLogState {
                servers,
                last_index: 0,
                term: 0,
                leader: None,
            })),
        };
        let logs = receivers.into_iter().zip(1..).map(|(events, id)| RuntimeLog {
            log: Arc::new(ServerLog {
                shared: shared.clone(),
                id,
            }),
            events,
            applied: LogPosition { index: 0, term: 0 },
            since_snapshot: 0,
        });
        let logs = logs.collect();
        (shared, logs)
    }

    /// A new term, with this leader.
    pub fn elect(&self, leader: Option<u64>) {
        let mut inner = self.inner.lock().unwrap();
        inner.term += 1;
        inner.leader = leader;
        for (server, id) in inner.servers.iter().zip(1..) {
            server
                .try_send(LogEvent::Leadership(inner.leadership(id)))
                .unwrap();
        }
    }
}

impl SharedLogState {
    fn leadership(&self, id: u64) -> Leadership {
        Leadership {
            term: self.term,
            leader: self.leader,
            is_here: self.leader == Some(id),
        }
    }
}

impl Log for ServerLog {
    fn propose(&self, id: ProposalId, entries: Vec<Bytes>) -> Result<(), ProposeError> {
        let mut inner = self.shared.inner.lock().unwrap();
        if inner.leader != Some(self.id) {
            return Err(ProposeError::NotLeader { leader: inner.leader });
        }
        let (first, term) = (inner.last_index + 1, inner.term);
        inner.last_index += entries.len() as u64;
        for (server, server_id) in inner.servers.iter().zip(1..) {
            let entries = (first..).zip(&entries).map(|(index, payload)| Entry {
                index,
                term,
                payload: payload.clone(),
            });
            let proposal = (server_id == self.id).then_some(id);
            let event = LogEvent::committed(proposal, entries.collect());
            // A server that has ended takes nothing.
            let _ = server.try_send(event);
        }
        Ok(())
    }

    fn status(&self) -> LogStatus {
        let inner = self.shared.inner.lock().unwrap();
        LogStatus {
            leadership: inner.leadership(self.id),
            first_index: inner.last_index + 1,
            committed_index: inner.last_index,
        }
    }

    fn read(&self, _from: u64, _max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        Ok(Vec::new())
    }

    fn barrier(&self) -> BoxFuture<'_, Result<u64, ProposeError>> {
        Box::pin(std::future::ready(Ok(self.status().committed_index)))
    }

    fn newest_snapshot(&self) -> Result<Option<SnapshotReader>, StoreError> {
        Ok(None)
    }

    fn begin_snapshot(&self, _at: LogPosition) -> Result<SnapshotWriter, StoreError> {
        Err(StoreError::Closed)
    }

    fn compact(&self, _snapshot: SnapshotWriter) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }

    fn install(&self, _snapshot: SnapshotWriter) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }
}
