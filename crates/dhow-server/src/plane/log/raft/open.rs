//! Opens a raft log and starts its tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::ids::Term;
use dhow_core::restart;
use dhow_wire::log_form::snapshot_term;
use openraft::{Config, SnapshotPolicy};
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

use super::barrier::{self, BarrierQueue};
use super::engine::Engine;
use super::error::RaftOpenError;
use super::incoming::Incoming;
use super::known_peers::{KnownPeers, identity_op, read_identity};
use super::limits::{MAX_EVENTS, MAX_PROPOSALS, MAX_VOTERS, SNAPSHOT_INSTALL_TIMEOUT_MS, VOTE_TIMEOUT_MS};
use super::log_state::{Parts, RaftLogState};
use super::machine::Machine;
use super::network::Network;
use super::offline::{vote_op, voted_term};
use super::options::{RaftOptions, RaftTimings};
use super::proposer::Proposer;
use super::raft_log::{RaftHandles, RaftLog};
use super::snapshot_data::{read_preamble, unreadable};
use super::storage::RaftStorage;
use super::store_slot::StoreSlot;
use super::types::{Raft, StoredMembership, Vote, log_id};
use super::{compaction, election, formation, leadership};
use crate::plane::log::LogEvent;
use crate::plane::log::store::{Batch, LogPosition, Recovery, SegmentStore, StoreId, StoreOptions};

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
        let shared = Arc::new(RaftLogState::new(Parts {
            node_id: options.node_id,
            first_peers: options.peers,
            timings: options.timings,
            max_record_bytes: options.store.max_record_bytes,
            known: KnownPeers::new(options.node_id, found.id, found.slot.clone(), found.peers),
            store: found.slot,
            storage: options.storage,
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
    let vote_timeout_ms = VOTE_TIMEOUT_MS.max(timings.heartbeat_ms + 1);
    let config = Config {
        cluster_name: "dhow".to_owned(),
        heartbeat_interval: timings.heartbeat_ms,
        // All that it uses the first for is how long a vote may take. The second is how long it keeps to a leader that it
        // has followed, which is decided in `handler` before.
        election_timeout_min: vote_timeout_ms,
        election_timeout_max: vote_timeout_ms + 1,
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
                slot.with(|store| store.commit(Batch::of(op)))
                    .map_err(RaftOpenError::Store)?;
                BTreeMap::new()
            }
        };
        let (snapshot, members, state_term) = newest(&slot)?;
        vote_above(&slot, node_id, state_term)?;
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

/// The newest snapshot's position and members, and the term that its state has reached.
fn newest(slot: &StoreSlot) -> Result<(Option<LogPosition>, StoredMembership, u64), RaftOpenError> {
    slot.with(|store| {
        let Some(mut reader) = store.snapshots().newest()? else {
            return Ok((None, StoredMembership::default(), 0));
        };
        let members = read_preamble(&mut reader).map_err(unreadable)?;
        let position = reader.position();
        // Where the state cannot be read, the runtime, which needs all of it, refuses to start.
        let term = snapshot_term(&mut reader).unwrap_or(0);
        Ok((Some(position), members, term))
    })
    .map_err(RaftOpenError::Store)
}

/// A log whose state has reached a higher term than the log itself was begun by an older version from a backup: what its
/// leaders plan is refused as old. This node votes for itself far above that, as a restore does, so that the next leader
/// is above it too.
fn vote_above(slot: &StoreSlot, node_id: u64, state_term: u64) -> Result<(), RaftOpenError> {
    let bounds = slot.bounds().map_err(RaftOpenError::Store)?;
    let last = bounds.last.map_or(0, |last| last.term);
    let reached = last.max(voted_term(slot)?);
    if state_term <= reached {
        return Ok(());
    }
    let term = restart::term_above(Term(state_term)).0;
    tracing::warn!(
        state_term,
        reached,
        term,
        "this log was begun from a backup in a term below the one of its state: the next leader's term is raised above it"
    );
    let vote = vote_op(Vote::new(term, node_id));
    let written = slot.with(|store| store.commit(Batch::of(vote)));
    written.map(drop).map_err(RaftOpenError::Store)
}

/// Starts the tasks around the library, and the one that closes everything.
fn start(shared: Arc<RaftLogState>, raft: Raft, events: mpsc::Sender<LogEvent>) -> RaftLog {
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
        inner: Arc::new(RaftHandles {
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

#[cfg(test)]
mod tests {
    use dhow_core::state::State;
    use dhow_wire::log_form::encode_snapshot;

    use super::super::offline::{SeedTerms, seed};
    use super::super::options::RaftPeerAddrs;
    use super::super::tests::NoTransport;
    use super::*;

    async fn voted_after(state_term: u64, first_term: u64) -> (u64, u64) {
        let dir = tempfile::tempdir().unwrap();
        let addr: std::net::SocketAddr = "127.0.0.1:1".parse().unwrap();
        let peers = BTreeMap::from([(
            1,
            RaftPeerAddrs {
                raft_addr: addr,
                api_addr: addr,
            },
        )]);
        let state = State {
            term: Term(state_term),
            cluster_id: Some("harbour".into()),
            ..State::default()
        };
        let mut bytes = Vec::new();
        encode_snapshot(&state, &mut bytes).unwrap();
        let terms = SeedTerms {
            log_term: 1,
            first_term,
        };
        let options = RaftOptions::new(1, peers.clone(), dir.path().join("raft"), Arc::new(NoTransport));
        let store = options.store.clone();
        seed(&options.dir, store, 1, peers, terms, &mut bytes.as_slice()).unwrap();
        let found = find(&options).await.unwrap();
        let once = voted_term(&found.slot).unwrap();
        found.slot.close();
        let found = find(&options).await.unwrap();
        let twice = voted_term(&found.slot).unwrap();
        found.slot.close();
        (once, twice)
    }

    #[tokio::test]
    async fn a_log_that_was_begun_below_its_state_goes_on_above_it() {
        let raised = 50 + restart::STRIDE;
        assert_eq!(voted_after(50, 1).await, (raised, raised), "once, and for good");
        assert_eq!(voted_after(50, 50).await, (50, 50));
        assert_eq!(voted_after(3, 70).await, (70, 70));
    }
}
