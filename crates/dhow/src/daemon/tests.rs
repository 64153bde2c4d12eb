//! What a daemon writes first, while nothing can be written.

use std::sync::Arc;

use bytes::Bytes;
use dhow_core::ids::NodeId;
use dhow_core::state::{Liveness, State};
use dhow_server::clock::FakeClock;
use dhow_server::net::peers::tls::ClusterIdCell;
use dhow_server::plane::log::store::{Entry, LogPosition, SnapshotReader, SnapshotWriter, StoreError};
use dhow_server::plane::log::{Log, LogStatus, ProposalId, ProposeError};
use dhow_server::plane::runtime::{
    RuntimeHandle, RuntimeLog, RuntimeOptions, VolatileLog, drain, spawn_with,
};
use dhow_wire::{DaemonConfig, parse_config};
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{raft, single};

/// A log on a disk that is full while it is told to be.
struct OnFullDisk {
    log: VolatileLog,
    is_full: watch::Receiver<bool>,
    refused: watch::Sender<u32>,
}

impl Log for OnFullDisk {
    fn propose(&self, id: ProposalId, entries: Vec<Bytes>) -> Result<(), ProposeError> {
        if !*self.is_full.borrow() {
            return self.log.propose(id, entries);
        }
        self.refused.send_modify(|refused| *refused += 1);
        let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
        Err(ProposeError::from(StoreError::NoSpace {
            path: "log".into(),
            size_bytes: 1,
            source: Arc::new(source),
        }))
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

/// A control plane that leads, and its disk.
struct Plane {
    handle: RuntimeHandle,
    cancel: CancellationToken,
    clock: FakeClock,
    is_full: watch::Sender<bool>,
    refused: watch::Receiver<u32>,
}

impl Plane {
    /// With room: the term has begun.
    async fn start() -> Self {
        let (is_full, full) = watch::channel(false);
        let (sender, refused) = watch::channel(0);
        let (log, events) = VolatileLog::new(0);
        let log = OnFullDisk {
            log,
            is_full: full,
            refused: sender,
        };
        let options = RuntimeOptions {
            log: Some(RuntimeLog {
                log: Arc::new(log),
                events,
                applied: LogPosition::default(),
                since_snapshot: 0,
            }),
            ..RuntimeOptions::default()
        };
        let (cancel, clock) = (CancellationToken::new(), FakeClock::new(0));
        let handle = spawn_with(cancel.clone(), State::default(), Arc::new(clock.clone()), options);
        let mut states = handle.view().states();
        states.wait_for(|state| state.term.0 > 0).await.unwrap();
        Self {
            handle,
            cancel,
            clock,
            is_full,
            refused,
        }
    }

    /// Waits until so many writes were refused since it was full.
    async fn refuses(&mut self, count: u32) {
        self.refused.wait_for(|refused| *refused >= count).await.unwrap();
    }

    fn state(&self) -> Arc<State> {
        self.handle.view().state()
    }

    async fn stop(self) {
        self.cancel.cancel();
        let drained = drain(self.handle.into_join_handles(), &self.clock, 1_000).await;
        assert!(drained.is_clean(), "{drained:?}");
    }
}

/// A daemon's with nothing set.
fn config() -> DaemonConfig {
    parse_config("", "dhow.yaml").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_single_node_writes_what_it_is_once_its_disk_has_room() {
    let mut plane = Plane::start().await;
    plane.is_full.send_replace(true);
    let (config, end) = (config(), CancellationToken::new());
    let (input, view) = (plane.handle.input(), plane.handle.view());
    let error = single::write_first(&config, &input, &view).await.unwrap_err();
    assert!(
        format!("{error:#}").contains("did not take the change"),
        "{error:#}"
    );
    let later = tokio::spawn(single::write_later(config, input, view, end));
    plane.refuses(3).await;
    assert_eq!(plane.state().cluster_id, None);
    plane.is_full.send_replace(false);
    later.await.unwrap();
    let state = plane.state();
    assert!(state.cluster_id.is_some());
    assert_eq!(state.feature_level, State::FEATURE_LEVEL);
    assert_eq!(state.node(NodeId(1)).unwrap().liveness, Liveness::Ready);
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_ends_tries_its_first_writes_no_more() {
    let mut plane = Plane::start().await;
    plane.is_full.send_replace(true);
    let end = CancellationToken::new();
    let (input, view) = (plane.handle.input(), plane.handle.view());
    let later = tokio::spawn(single::write_later(config(), input, view, end.clone()));
    plane.refuses(1).await;
    end.cancel();
    later.await.unwrap();
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_gets_its_id_once_its_leader_can_write_it() {
    let mut plane = Plane::start().await;
    plane.is_full.send_replace(true);
    let (cell, end) = (ClusterIdCell::default(), CancellationToken::new());
    let (input, view) = (plane.handle.input(), plane.handle.view());
    let found = tokio::spawn(raft::found(input, view, cell.clone(), end));
    // Nothing else happens in such a cluster: it is tried without news.
    plane.refuses(3).await;
    assert_eq!(plane.state().cluster_id, None);
    plane.is_full.send_replace(false);
    found.await.unwrap();
    assert_eq!(plane.state().cluster_id, cell.get().cloned());
    assert!(cell.get().is_some());
    plane.stop().await;
}
