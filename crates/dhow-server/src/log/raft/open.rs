//! Opens a raft log and starts its tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use openraft::{Config, SnapshotPolicy};
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

use super::barrier::{self, BarrierQueue};
use super::engine::Engine;
use super::error::RaftOpenError;
use super::incoming::Incoming;
use super::known_peers::{KnownPeers, identity_op, read_identity};
use super::limits::{MAX_EVENTS, MAX_PROPOSALS, MAX_VOTERS, SNAPSHOT_INSTALL_TIMEOUT_MS};
use super::machine::Machine;
use super::network::Network;
use super::options::{RaftOptions, RaftTimings};
use super::proposer::Proposer;
use super::raft_log::{Inner, RaftLog};
use super::shared::{Parts, Shared};
use super::snapshot_data::{read_preamble, unreadable};
use super::storage::RaftStorage;
use super::store_slot::StoreSlot;
use super::types::{Raft, StoredMembership, log_id};
use super::{compaction, election, formation, leadership};
use crate::log::LogEvent;
use crate::log::store::{LogPosition, Recovery, SegmentStore, StoreId, StoreOptions};

/// A raft log that was opened.
#[derive(Debug)]
pub struct OpenedRaftLog {
    pub log: RaftLog,
    /// What it tells. Entries after the newest snapshot come here as they are known to be committed.
    pub events: mpsc::Receiver<LogEvent>,
    /// What was found on disk.
    pub recovery: Recovery,
    /// The position of the newest snapshot, from which the state is made.
    pub applied: LogPosition,
}

/// What the store says about the past.
struct Found {
    slot: StoreSlot,
    id: StoreId,
    recovery: Recovery,
    peers: BTreeMap<u64, StoreId>,
    members: StoredMembership,
    snapshot: Option<LogPosition>,
}

impl RaftLog {
    /// Opens the log in a directory of its own. Must be called inside a tokio runtime.
    pub async fn open(options: RaftOptions) -> Result<OpenedRaftLog, RaftOpenError> {
        check(&options)?;
        let config = config(&options.timings)?;
        let found = find(&options).await?;
        let shared = Arc::new(Shared::new(Parts {
            node_id: options.node_id,
            first_peers: options.peers,
            timings: options.timings,
            max_record_bytes: options.store.max_record_bytes,
            known: KnownPeers::new(options.node_id, found.id, found.slot.clone(), found.peers),
            store: found.slot,
            transport: options.transport,
            members: found.members,
        }));
        let (sender, events) = mpsc::channel(MAX_EVENTS);
        let network = Network {
            shared: Arc::clone(&shared),
        };
        let machine = Machine::new(Arc::clone(&shared), sender.clone(), found.snapshot.map(log_id));
        let storage = RaftStorage::new(Arc::clone(&shared));
        let raft = Raft::new(options.node_id, config, network, storage, machine)
            .await
            .map_err(|error| RaftOpenError::Start {
                why: error.to_string(),
            })?;
        Ok(OpenedRaftLog {
            log: start(shared, raft, sender),
            events,
            recovery: found.recovery,
            applied: found.snapshot.unwrap_or_default(),
        })
    }
}

fn check(options: &RaftOptions) -> Result<(), RaftOpenError> {
    let node_id = options.node_id;
    if !options.peers.contains_key(&node_id) {
        return Err(RaftOpenError::NotAmongPeers { node_id });
    }
    let (count, max) = (options.peers.len(), MAX_VOTERS);
    if count > max {
        return Err(RaftOpenError::TooManyPeers { count, max });
    }
    Ok(())
}

/// The library never elects, makes snapshots or forgets entries by itself: see `election` and `compaction`.
fn config(timings: &RaftTimings) -> Result<Arc<Config>, RaftOpenError> {
    let config = Config {
        cluster_name: "dhow".to_owned(),
        heartbeat_interval: timings.heartbeat_ms,
        election_timeout_min: timings.election_min_ms,
        election_timeout_max: timings.election_max_ms,
        install_snapshot_timeout: SNAPSHOT_INSTALL_TIMEOUT_MS,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        enable_elect: false,
        ..Config::default()
    };
    let checked = config.validate();
    checked.map(Arc::new).map_err(|error| RaftOpenError::Timings {
        why: error.to_string(),
    })
}

/// Opens the store, and makes sure that it is this node's.
async fn find(options: &RaftOptions) -> Result<Found, RaftOpenError> {
    let (dir, node_id) = (options.dir.clone(), options.node_id);
    let store = StoreOptions {
        purged_needs_snapshot: true,
        ..options.store.clone()
    };
    let work = move || {
        let (store, recovery) = SegmentStore::open(&dir, store).map_err(RaftOpenError::Store)?;
        let id = store.id();
        let slot = StoreSlot::new(store);
        let peers = match read_identity(&slot)? {
            Some((found, _)) if found != node_id => {
                let wanted = node_id;
                return Err(RaftOpenError::AnotherNode { dir, found, wanted });
            }
            Some((_, peers)) => peers,
            None => {
                let op = identity_op(node_id, &BTreeMap::new());
                slot.with(|store| store.commit(crate::log::store::Batch::of(op)))
                    .map_err(RaftOpenError::Store)?;
                BTreeMap::new()
            }
        };
        let (snapshot, members) = newest(&slot)?;
        Ok(Found {
            slot,
            id,
            recovery,
            peers,
            members,
            snapshot,
        })
    };
    let found = tokio::task::spawn_blocking(work).await;
    found.unwrap_or_else(|error| {
        Err(RaftOpenError::Start {
            why: error.to_string(),
        })
    })
}

fn newest(slot: &StoreSlot) -> Result<(Option<LogPosition>, StoredMembership), RaftOpenError> {
    slot.with(|store| {
        let Some(mut reader) = store.snapshots().newest()? else {
            return Ok((None, StoredMembership::default()));
        };
        let members = read_preamble(&mut reader).map_err(unreadable)?;
        Ok((Some(reader.position()), members))
    })
    .map_err(RaftOpenError::Store)
}

/// Starts the tasks around the library, and the one that closes everything.
fn start(shared: Arc<Shared>, raft: Raft, events: mpsc::Sender<LogEvent>) -> RaftLog {
    let (barriers, waiters) = BarrierQueue::new();
    let engine = Arc::new(Engine {
        shared,
        raft,
        incoming: Incoming::default(),
        barriers,
    });
    let (proposals, queue) = mpsc::channel(MAX_PROPOSALS);
    let (compactions, wakeups) = mpsc::channel(1);
    let tasks = TaskTracker::new();
    let handle = || Arc::clone(&engine);
    tasks.spawn(leadership::run(handle(), events.clone()));
    tasks.spawn(Proposer::new(handle(), queue, events).run());
    tasks.spawn(election::run(handle()));
    tasks.spawn(formation::run(handle()));
    tasks.spawn(barrier::run(handle(), waiters));
    tasks.spawn(compaction::run(handle(), wakeups));
    tasks.close();
    let (closed, is_closed) = watch::channel(false);
    tokio::spawn(close(handle(), tasks, closed));
    RaftLog {
        inner: Arc::new(Inner {
            engine,
            proposals,
            compactions,
            is_closed,
        }),
    }
}

/// Waits until the log is to be closed, and closes it.
async fn close(engine: Arc<Engine>, tasks: TaskTracker, closed: watch::Sender<bool>) {
    engine.shared.cancel.cancelled().await;
    // It has ended either way.
    let _ = engine.raft.shutdown().await;
    tasks.wait().await;
    engine.incoming.clear().await;
    let slot = engine.shared.store.clone();
    // A thread that panicked while closing has closed all that it could.
    let _ = tokio::task::spawn_blocking(move || slot.close()).await;
    closed.send_replace(true);
}
