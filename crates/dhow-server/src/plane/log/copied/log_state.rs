//! What the handles, the task and the routes of a copied log share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dhow_core::state::State;
use dhow_wire::log_form::encode_snapshot;
use tokio::sync::{mpsc, oneshot, watch};

use super::CopiedLog;
use super::epoch::EpochRule;
use super::error::CopyError;
use super::kept_lost::KeptLost;
use super::message::{CopyAge, PeerBeat, Whole};
use super::network::CopyNetwork;
use super::open::CopiedTimings;
use super::peer_table::PeerTable;
use super::stand::{Role, Stand};
use crate::clock::Clock;
use crate::plane::log::store::{Ack, Batch, LogPosition, MetaKey, Op, SegmentStore, StoreError};
use crate::plane::log::{LogEvent, ProposalId, Recovered, recover};
use crate::plane::storage::Storage;

/// How long peers are told that this one ends.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// A proposal that waits for the task of a copied log.
pub(super) struct Proposed {
    pub id: ProposalId,
    /// The epoch that it was made in: in another one it is refused.
    pub epoch: u64,
    pub entries: Vec<Bytes>,
    /// A place in the channel to the reducer.
    pub place: mpsc::OwnedPermit<LogEvent>,
}

/// The open copied log of one peer.
pub(super) struct CopiedLogState {
    pub node: u64,
    pub rule: EpochRule,
    pub store: SegmentStore,
    pub events: mpsc::Sender<LogEvent>,
    pub queue: mpsc::Sender<Proposed>,
    pub stand: Mutex<Stand>,
    /// Held while the log is written or replaced: one at a time, so that the reducer gets the events in the same order.
    pub turn: tokio::sync::Mutex<()>,
    pub peers: PeerTable,
    pub lost: KeptLost,
    pub network: Arc<dyn CopyNetwork>,
    pub clock: Arc<dyn Clock>,
    pub storage: Storage,
    pub timings: CopiedTimings,
    /// Counts what the task should look at.
    pub changes: watch::Sender<u64>,
    /// The position at which this log was first in line with that of whoever leads, since it was opened.
    pub in_line: watch::Sender<Option<u64>>,
}

impl CopiedLogState {
    pub fn now_ms(&self) -> u64 {
        self.clock.monotonic_ms()
    }

    /// The highest epoch that this peer believes in.
    pub fn epoch_limit(&self) -> u64 {
        let now_unix_secs = self.clock.wall_unix_ms().div_euclid(1_000);
        super::epoch::limit(self.stand().promised, now_unix_secs)
    }

    pub fn stand(&self) -> MutexGuard<'_, Stand> {
        // Each change is whole before the lock is let go of.
        self.stand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task.
    pub fn news(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// This peer leads, or has all that the leader has.
    pub fn come_in_line(&self) {
        let index = self.last().index;
        self.in_line
            .send_if_modified(|at| at.is_none() && at.replace(index).is_none());
    }

    /// Compares with what a peer last said of itself, where it leads in the epoch that this peer has a copy of. Entries
    /// that follow on say nothing: more of them may be on their way.
    pub fn compare_with_leader(&self, leader: u64) {
        let beat = self.peers.list(self.now_ms()).into_iter();
        let beat = beat.filter(|peer| peer.node == leader).find_map(|peer| peer.beat);
        let (last, promised) = (self.last(), self.stand().promised);
        let is_of_this = |beat: &PeerBeat| beat.leads && beat.promised == promised && beat.epoch == last.term;
        if beat
            .filter(is_of_this)
            .is_some_and(|beat| beat.index <= last.index)
        {
            self.come_in_line();
        }
    }

    pub fn last(&self) -> LogPosition {
        self.store.bounds().last.unwrap_or_default()
    }

    pub fn beat(&self) -> PeerBeat {
        let (last, stand) = (self.last(), self.stand());
        PeerBeat {
            epoch: last.term,
            index: last.index,
            promised: stand.promised,
            leads: stand.role == Role::Leading,
            leaving: stand.leaving,
            // The log does not know it.
            peers_hash: None,
        }
    }

    /// Writes to the store and waits until it is durable.
    pub async fn commit(&self, batch: Batch) -> Result<Ack, CopyError> {
        let (answer, outcome) = oneshot::channel();
        let done = Box::new(move |result| {
            // Whoever asked may have gone.
            let _ = answer.send(result);
        });
        self.store.submit(batch, done)?;
        Ok(outcome.await.unwrap_or(Err(StoreError::Closed))?)
    }

    /// Promises not to take anything of a lower epoch. Under the turn.
    pub async fn promise(&self, epoch: u64) -> Result<(), CopyError> {
        if self.stand().promised >= epoch {
            return Ok(());
        }
        let value = Bytes::copy_from_slice(&epoch.to_le_bytes());
        let key = MetaKey::Vote;
        self.commit(Batch::of(Op::Meta { key, value })).await?;
        self.stand().promised = epoch;
        Ok(())
    }

    /// Where nothing can be written any more, the runtime ends with the cause.
    pub async fn end_where_fatal(&self, error: &CopyError) {
        if let Some(cause) = error.fatal() {
            let _ = self.events.send(LogEvent::Failed(Arc::clone(cause))).await;
        }
    }

    /// Becomes something else and tells the reducer, where that is news.
    pub async fn become_role(&self, role: Role) {
        let leadership = {
            let mut stand = self.stand();
            let before = stand.leadership(self.node);
            stand.role = role;
            let now = stand.leadership(self.node);
            (now != before).then_some(now)
        };
        if let Some(leadership) = leadership {
            // The reducer may have ended; then nobody wants to know.
            let _ = self.events.send(LogEvent::Leadership(leadership)).await;
        }
        self.news();
    }

    /// The state at the end of the log. Under the turn.
    pub async fn recover(self: &Arc<Self>) -> Result<Recovered, CopyError> {
        let log = CopiedLog {
            shared: Arc::clone(self),
        };
        let read = tokio::task::spawn_blocking(move || recover(&log));
        let read = read.await.map_err(|_| CopyError::CutOff)?;
        read.map_err(|error| CopyError::Recover(Arc::new(error)))
    }

    pub fn standing(&self, recovered: &Recovered) -> CopyAge {
        let state = &recovered.state;
        let last = self.last();
        CopyAge {
            edits: state.branch.edits,
            epoch: last.term,
            index: last.index,
            revision: state.revision.0,
            time_ms: state.time.0,
        }
    }

    /// Everything that this peer has, as a message of an epoch. Under the turn, so that the log stays as it is.
    pub async fn whole(self: &Arc<Self>, epoch: u64) -> Result<Whole, CopyError> {
        let recovered = self.recover().await?;
        let index = self.last().index;
        let bytes = encoded(recovered.state).await?;
        Ok(Whole {
            node: self.node,
            epoch,
            index,
            bytes,
        })
    }

    /// Replaces the log by a state at a position above all that it had. Under the turn.
    pub async fn install(&self, at: LogPosition, bytes: Bytes) -> Result<(), CopyError> {
        let store = self.store.clone();
        let installed = tokio::task::spawn_blocking(move || {
            let mut writer = store.snapshots().create(at)?;
            std::io::Write::write_all(&mut writer, &bytes).map_err(|error| unreadable(&error))?;
            Ok::<_, CopyError>(store.install(writer)?)
        });
        installed.await.map_err(|_| CopyError::CutOff)??;
        let _ = self.events.send(LogEvent::SnapshotInstalled { at }).await;
        Ok(())
    }

    /// Leads no more and tells the others.
    pub async fn leave(&self) {
        {
            let _turn = self.turn.lock().await;
            self.stand().leaving = true;
            self.become_role(Role::Following { leader: None }).await;
        }
        let peers = self.peers.others();
        let told = peers.into_iter().map(|peer| self.network.leave(peer, self.node));
        let told = futures_util::future::join_all(told);
        // Those who do not hear it find out by their heartbeats.
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, told).await;
    }
}

/// The state as a snapshot is written.
pub(super) async fn encoded(state: State) -> Result<Bytes, CopyError> {
    let encoded = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        let written = encode_snapshot(&state, &mut bytes);
        written
            .map(|()| Bytes::from(bytes))
            .map_err(|error| unreadable(&error))
    });
    encoded.await.map_err(|_| CopyError::CutOff)?
}

/// An error with its causes, in one line.
pub(super) fn unreadable(error: &dyn std::error::Error) -> CopyError {
    let mut why = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        why = format!("{why}: {inner}");
        cause = inner.source();
    }
    CopyError::State(why)
}
