//! What the parts of an open raft log have in common.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::Admission;
use super::ahead::Ahead;
use super::known_peers::KnownPeers;
use super::limits::{ELECTION_WRITES, ENTRY_OVERHEAD_BYTES, LEASE_WRITES};
use super::options::{RaftPeerAddrs, RaftTimings};
use super::pending::Pending;
use super::store_slot::StoreSlot;
use super::strangers::Strangers;
use super::types::StoredMembership;
use crate::net::peers::PeerTransport;
use crate::plane::log::Leadership;
use crate::plane::log::store::{LogPosition, StoreError, StoreId};
use crate::plane::storage::Storage;

/// What the storage, the state machine, the lines to other servers and the tasks of one open raft log use together.
pub struct RaftLogState {
    pub node_id: u64,
    /// The members that a new cluster begins with.
    pub first_peers: BTreeMap<u64, RaftPeerAddrs>,
    pub timings: RaftTimings,
    /// The largest record of the store, and what is written in one frame.
    pub max_record_bytes: usize,
    /// The largest proposal: what a record holds, without what the form of an entry adds.
    pub max_proposal_bytes: usize,
    pub store: StoreSlot,
    /// Whether what the store writes is still somewhere.
    pub storage: Storage,
    pub transport: Arc<dyn PeerTransport>,
    pub known: KnownPeers,
    pub pending: Pending,
    pub ahead: Ahead,
    /// Who leads, as far as this node can be sure.
    pub leadership: watch::Sender<Leadership>,
    /// Whether proposals are held back, while another server is about to lead.
    pub is_held: watch::Sender<bool>,
    /// The position of a snapshot that is being installed.
    pub installing: watch::Sender<Option<LogPosition>>,
    pub admission: watch::Sender<Admission>,
    /// Servers that are not the ones that this node knows under their ids.
    pub strangers: Strangers,
    /// Servers that take this node for the one that had its directory before.
    pub mistaken: Strangers,
    /// When a leader was heard last; at first when the log was opened.
    heard: Mutex<Instant>,
    /// When this node last said that it would elect a node, and which.
    promised: Mutex<Option<(Instant, u64)>>,
    /// The members as of the newest snapshot, and all that were in force after it, by the entry that made them so.
    /// There are fewer than entries between two snapshots.
    memberships: Mutex<Vec<StoredMembership>>,
    /// Why the store failed.
    failure: OnceLock<Arc<StoreError>>,
    /// Ends every task.
    pub cancel: CancellationToken,
}

/// What a [`RaftLogState`] is made of.
pub struct Parts {
    pub node_id: u64,
    pub first_peers: BTreeMap<u64, RaftPeerAddrs>,
    pub timings: RaftTimings,
    pub max_record_bytes: usize,
    pub store: StoreSlot,
    pub storage: Storage,
    pub transport: Arc<dyn PeerTransport>,
    pub known: KnownPeers,
    /// Of the newest snapshot.
    pub members: StoredMembership,
}

impl RaftLogState {
    pub fn new(parts: Parts) -> Self {
        let nobody = Leadership {
            term: 0,
            leader: None,
            is_here: false,
        };
        Self {
            pending: Pending::new(parts.node_id, rand::random()),
            ahead: Ahead::default(),
            node_id: parts.node_id,
            first_peers: parts.first_peers,
            timings: parts.timings,
            max_record_bytes: parts.max_record_bytes,
            max_proposal_bytes: parts.max_record_bytes.saturating_sub(ENTRY_OVERHEAD_BYTES),
            store: parts.store,
            storage: parts.storage,
            transport: parts.transport,
            known: parts.known,
            leadership: watch::Sender::new(nobody),
            is_held: watch::Sender::new(false),
            installing: watch::Sender::new(None),
            admission: watch::Sender::new(Admission::Joining),
            strangers: Strangers::default(),
            mistaken: Strangers::default(),
            heard: Mutex::new(Instant::now()),
            promised: Mutex::new(None),
            memberships: Mutex::new(vec![parts.members]),
            failure: OnceLock::new(),
            cancel: CancellationToken::new(),
        }
    }

    /// Who leads, as far as this node can be sure.
    pub fn leadership(&self) -> Leadership {
        *self.leadership.borrow()
    }

    /// A leader has spoken.
    pub fn hear(&self) {
        *self.heard() = Instant::now();
    }

    /// How long no leader has spoken.
    pub fn silence(&self) -> Duration {
        self.heard().elapsed()
    }

    /// How long a leader that was heard is taken to be there, and one that a quorum has answered for sure. Where disks
    /// are slow, members speak less often while they write; this node's own disk says how slow disks are here.
    pub fn lease(&self) -> Duration {
        self.timings.lease() + self.write_slack()
    }

    /// How much longer than usual a member may be silent while it writes.
    pub fn write_slack(&self) -> Duration {
        self.store.pace().slack() * LEASE_WRITES
    }

    /// How much longer than usual an election may take.
    pub fn election_slack(&self) -> Duration {
        self.store.pace().slack() * ELECTION_WRITES
    }

    /// This node would elect a node, which may be itself.
    pub fn promise(&self, to: u64) {
        *self.promised() = Some((Instant::now(), to));
    }

    /// How long this node leaves it to another one to be elected, that it has said yes to. On a quick disk that is no time.
    pub fn promised_to_other_than(&self, node: u64) -> Option<Duration> {
        let (at, _) = self.promised().filter(|(_, to)| *to != node)?;
        let rest = self.election_slack().checked_sub(at.elapsed())?;
        (!rest.is_zero()).then_some(rest)
    }

    fn promised(&self) -> MutexGuard<'_, Option<(Instant, u64)>> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self) -> MutexGuard<'_, Instant> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes who the members are from an entry on.
    pub fn members_changed(&self, members: StoredMembership) {
        self.memberships().push(members);
    }

    /// Who the members were when this entry was applied.
    pub fn members_at(&self, at: LogPosition) -> Option<StoredMembership> {
        let is_before = |members: &&StoredMembership| {
            members
                .log_id()
                .as_ref()
                .is_none_or(|since| since.index <= at.index)
        };
        self.memberships().iter().rev().find(is_before).cloned()
    }

    /// Who the members are in the newest applied entry.
    pub fn members(&self) -> StoredMembership {
        self.memberships().last().cloned().unwrap_or_default()
    }

    /// Remembers the store of a node, where it is a member or one that a new cluster begins with: who is neither may come
    /// with another store the next time.
    pub async fn learn(&self, node: u64, store: StoreId) -> Result<(), StoreError> {
        // Nearly every message is of a node that is known.
        if self.known.of(node).is_some() {
            return Ok(());
        }
        let members = self.members();
        let is_expected = match members.nodes().next() {
            Some(_) => members.membership().get_node(&node).is_some(),
            None => self.first_peers.contains_key(&node),
        };
        match is_expected {
            true => self.known.learn(node, store).await,
            false => Ok(()),
        }
    }

    /// Forgets who the members were before this entry.
    pub fn forget_members_before(&self, at: LogPosition) {
        let mut memberships = self.memberships();
        let is_before = |members: &StoredMembership| {
            members
                .log_id()
                .as_ref()
                .is_none_or(|since| since.index <= at.index)
        };
        let count = memberships
            .iter()
            .take_while(|members| is_before(members))
            .count();
        memberships.drain(..count.saturating_sub(1));
    }

    fn memberships(&self) -> MutexGuard<'_, Vec<StoredMembership>> {
        self.memberships.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why the store failed; the first reason counts.
    pub fn failed(&self, error: StoreError) {
        let _ = self.failure.set(Arc::new(error));
    }

    pub fn failure(&self) -> Option<Arc<StoreError>> {
        self.failure.get().cloned()
    }
}
