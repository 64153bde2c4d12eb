//! What fails is told with its cause, and nothing hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use dhow_core::plan::Plan;
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::support::{DEADLINE_MS, Gate, Server, deploy, open, register, set_secret};
use crate::plane::log::store::{Entry, LogPosition, SnapshotReader, SnapshotWriter, StoreError};
use crate::plane::log::{Leadership, Log, LogEvent, LogStatus, ProposalId, ProposeError};
use crate::plane::runtime::{RuntimeFailure, RuntimeLog, VolatileLog, WriteError, drain};
use crate::plane::storage::Storage;

#[tokio::test]
async fn a_planner_that_panics_stops_the_server_with_the_cause() {
    let server = Server::start_volatile(|options| {
        options.planner = Arc::new(|state, _, _| {
            assert!(state.secrets.is_empty(), "no plan for a state with secrets");
            Plan::default()
        });
    });
    server.write(set_secret(1)).await.unwrap();
    let failure = server.handle.ended().await.unwrap_err();
    let RuntimeFailure::Planner { message } = failure.as_ref() else {
        panic!("{failure:?}");
    };
    assert_eq!(message, "no plan for a state with secrets");
    let drained = drain(server.handle.into_join_handles(), &server.clock, DEADLINE_MS).await;
    assert!(drained.aborted.is_empty() && drained.panicked.is_empty());
    assert!(matches!(
        drained.failure.as_deref(),
        Some(RuntimeFailure::Planner { .. })
    ));
}

#[tokio::test]
async fn a_disk_that_fails_stops_the_server_and_acknowledges_nothing() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    server.write(register(1)).await.unwrap();
    let hash = server.state().hash();
    server.gate.break_disk();
    let error = server.write(deploy(1)).await.unwrap_err();
    assert!(matches!(error, WriteError::Unknown), "{error}");
    let failure = server.handle.ended().await.unwrap_err();
    assert!(matches!(failure.as_ref(), RuntimeFailure::Log(_)), "{failure:?}");
    assert_eq!(
        server.state().hash(),
        hash,
        "nothing that is not durable was applied"
    );
    let drained = drain(server.handle.into_join_handles(), &server.clock, DEADLINE_MS).await;
    assert!(drained.aborted.is_empty() && drained.panicked.is_empty());
    // Whether the last write is there is not known; that the acknowledged one is, is.
    let opened = open(dir.path(), &Gate::default());
    assert!(opened.state.nodes.contains_key(&dhow_core::ids::NodeId(1)));
}

#[tokio::test]
async fn a_write_that_is_too_large_is_refused_and_the_rest_goes_on() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&dir);
    let large = dhow_core::command::Command::Cluster(dhow_core::command::ClusterCommand::SetSecret {
        name: "large".into(),
        sealed: vec![0; 20 * 1024].into(),
    });
    let error = server.write(large).await.unwrap_err();
    assert_eq!(error.code().status(), 413, "{error}");
    server.write(set_secret(1)).await.unwrap();
    assert!(server.stop().await.is_clean());
}

/// A log under the test's control.
fn scripted() -> (mpsc::Sender<LogEvent>, RuntimeLog) {
    let (log, _) = VolatileLog::new(0);
    let (sender, events) = mpsc::channel(16);
    let log = RuntimeLog {
        log: Arc::new(log) as Arc<dyn Log>,
        events,
        applied: LogPosition::default(),
        since_snapshot: 0,
    };
    (sender, log)
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_stops_the_server() {
    let (events, log) = scripted();
    let server = Server::start_volatile(|options| options.log = Some(log));
    let entries = vec![Entry {
        index: 1,
        term: 1,
        payload: vec![99, 1, 2].into(),
    }];
    let committed = LogEvent::committed(None, entries);
    events.send(committed).await.unwrap();
    let failure = server.handle.ended().await.unwrap_err();
    assert!(
        matches!(failure.as_ref(), RuntimeFailure::Entry { index: 1, .. }),
        "{failure:?}"
    );
}

#[tokio::test]
async fn a_log_that_ends_stops_the_server() {
    let (events, log) = scripted();
    let server = Server::start_volatile(|options| options.log = Some(log));
    drop(events);
    let failure = server.handle.ended().await.unwrap_err();
    assert!(
        matches!(failure.as_ref(), RuntimeFailure::LogEnded),
        "{failure:?}"
    );
}

#[tokio::test]
async fn a_server_that_does_not_lead_says_who_does() {
    let (events, log) = scripted();
    let server = Server::start_volatile(|options| options.log = Some(log));
    let error = server.write(set_secret(1)).await.unwrap_err();
    assert!(matches!(error, WriteError::NotLeader { leader: None }), "{error}");
    assert_eq!(error.retry_after_secs(), Some(1));
    let elsewhere = Leadership {
        term: 3,
        leader: Some(2),
        is_here: false,
    };
    events.send(LogEvent::Leadership(elsewhere)).await.unwrap();
    let mut leaderships = server.handle.view().leaderships();
    leaderships.wait_for(|now| now.leader == Some(2)).await.unwrap();
    let error = server.write(set_secret(1)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "this server does not lead the cluster, node 2 does; send it there"
    );
    assert!(server.stop().await.is_clean());
}

/// A log that does not take the first proposals.
struct Refusing {
    log: VolatileLog,
    left: AtomicU32,
}

impl Log for Refusing {
    fn propose(&self, id: ProposalId, entries: Vec<Bytes>) -> Result<(), ProposeError> {
        let less = |left: u32| left.checked_sub(1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Err(ProposeError::Full),
            Err(_) => self.log.propose(id, entries),
        }
    }

    fn status(&self) -> LogStatus {
        self.log.status()
    }

    fn read(&self, from: u64, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        self.log.read(from, max_bytes)
    }

    fn newest_snapshot(&self) -> Result<Option<SnapshotReader>, StoreError> {
        self.log.newest_snapshot()
    }

    fn begin_snapshot(&self, at: LogPosition) -> Result<SnapshotWriter, StoreError> {
        self.log.begin_snapshot(at)
    }

    fn compact(&self, snapshot: SnapshotWriter) -> Result<(), StoreError> {
        self.log.compact(snapshot)
    }

    fn install(&self, snapshot: SnapshotWriter) -> Result<(), StoreError> {
        self.log.install(snapshot)
    }

    fn barrier(&self) -> BoxFuture<'_, Result<u64, ProposeError>> {
        self.log.barrier()
    }
}

#[tokio::test]
async fn the_beginning_of_a_term_is_proposed_until_the_log_takes_it() {
    let (log, events) = VolatileLog::new(0);
    let log = Refusing {
        log,
        left: AtomicU32::new(3),
    };
    let log = RuntimeLog {
        log: Arc::new(log) as Arc<dyn Log>,
        events,
        applied: LogPosition::default(),
        since_snapshot: 0,
    };
    let planned = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&planned);
    let server = Server::start_volatile(|options| {
        options.log = Some(log);
        options.planner = Arc::new(move |_, _, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            Plan::default()
        });
    });
    let mut leaderships = server.handle.view().leaderships();
    leaderships.wait_for(|now| now.is_here).await.unwrap();
    while server.state().term.0 == 0 {
        server.clock.advance(1_000);
        tokio::task::yield_now().await;
    }
    server.write(set_secret(1)).await.unwrap();
    while planned.load(Ordering::Relaxed) == 0 {
        server.clock.advance(1_000);
        tokio::task::yield_now().await;
    }
    assert!(server.stop().await.is_clean());
}

#[tokio::test]
async fn a_server_whose_directory_is_gone_takes_no_change_and_goes_on_when_it_is_back() {
    let storage = Storage::default();
    let server = Server::start_volatile(|options| options.storage = storage.clone());
    server.write(set_secret(1)).await.unwrap();
    assert!(storage.set_gone(true));
    let error = server.write(set_secret(2)).await.unwrap_err();
    assert_eq!(error.code().status(), 503, "{error}");
    assert!(error.to_string().contains("data directory"), "{error}");
    assert!(server.handle.view().storage().is_gone());
    assert!(storage.set_gone(false));
    server.write(set_secret(2)).await.unwrap();
    assert!(server.stop().await.is_clean());
}
