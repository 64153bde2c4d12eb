//! The log of a static cluster: a few peers from the configuration, no consensus. The lowest healthy peer leads; what
//! it writes is durable on its own disk and copied to every peer that it reaches before it is acknowledged.
//!
//! Every leadership is an epoch. It begins with a claim, which fences whoever led before at all peers that are
//! reached, and with a whole copy of the newest state among them, at a position above all of theirs: so the log of a
//! peer only ever goes forward, also where two halves of a divided cluster meet again. What the losing half had
//! written is kept aside and told to the leader. Called by the reducer through [`Log`], by the routes between peers,
//! and by the daemon, which runs its [`CopiedLogTask`]. It must never acknowledge what is not on its own disk, and never
//! take a copy from a leader that was deposed.

mod accept;
mod copying;
mod epoch;
mod error;
mod kept_lost;
mod leading;
mod limits;
mod log_state;
mod message;
mod network;
mod open;
mod peer_table;
mod stand;
mod task;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};

pub use error::CopyError;
pub use kept_lost::KeptLost;
pub use limits::WHOLE_BYTES_MAX;
pub use message::{Claim, ClaimAnswer, Copies, CopyAge, CopyAnswer, PeerBeat, Whole};
pub use network::{CopyNetwork, Silent};
pub use open::{CopiedOptions, CopiedTimings, OpenedCopiedLog};
pub use peer_table::PeerHealth;
pub use task::CopiedLogTask;

use super::store::{Batch, Entry, LogPosition, Op, SnapshotReader, SnapshotWriter, StoreError};
use super::{Log, LogEvent, LogStatus, ProposalId, ProposeError};
use log_state::{CopiedLogState, Proposed};

/// A handle on the log of a static cluster, for the routes between peers, for the API and for the daemon; clones are
/// handles of the same log.
#[derive(Clone)]
pub struct CopiedLog {
    shared: Arc<CopiedLogState>,
}

impl CopiedLog {
    /// What this peer answers to a heartbeat.
    pub fn beat(&self) -> PeerBeat {
        self.shared.beat()
    }

    /// How the peers are, this one included.
    pub fn peers(&self) -> Vec<PeerHealth> {
        self.shared.peers.list(self.shared.now_ms())
    }

    /// When a peer that does not answer at the moment was first asked in vain, in monotonic milliseconds.
    pub fn silent_since(&self, node: u64) -> Option<u64> {
        self.shared.peers.silent_since(node)
    }

    /// Peers that are behind in copies although they are there.
    pub fn behind(&self) -> Vec<u64> {
        self.shared.peers.behind()
    }

    /// The highest epoch that this peer has promised to.
    pub fn promised(&self) -> u64 {
        self.shared.stand().promised
    }

    /// The position at which this log was first in line with that of whoever leads, since it was opened; none before.
    pub fn in_line(&self) -> watch::Receiver<Option<u64>> {
        self.shared.in_line.subscribe()
    }

    /// Leads in epochs above this term alone, which the state has: a log that an older version began from a backup
    /// counts its epochs anew. To be called before the task runs.
    pub fn lead_above(&self, term: u64) {
        let mut stand = self.shared.stand();
        stand.promised = stand.promised.max(term);
    }

    /// What a losing half had written and has not been told to the leader yet.
    pub fn kept_lost(&self) -> &KeptLost {
        &self.shared.lost
    }

    /// Another peer wants to lead.
    pub async fn claim(&self, claim: Claim) -> Result<ClaimAnswer, CopyError> {
        self.check_storage()?;
        self.watched(self.shared.take_claim(claim).await).await
    }

    /// The leader sends what it wrote.
    pub async fn copies(&self, copies: Copies) -> Result<CopyAnswer, CopyError> {
        self.check_storage()?;
        self.watched(self.shared.take_copies(copies).await).await
    }

    /// The leader sends everything.
    pub async fn put_whole(&self, whole: Whole) -> Result<CopyAnswer, CopyError> {
        self.check_storage()?;
        self.watched(self.shared.take_whole(whole).await).await
    }

    /// What is written to a directory that is gone is nowhere after the next start: nothing of it may count.
    fn check_storage(&self) -> Result<(), CopyError> {
        match self.shared.storage.is_gone() {
            true => Err(CopyError::Gone),
            false => Ok(()),
        }
    }

    /// A disk that failed ends the control plane, whoever asked for the write.
    async fn watched<T>(&self, outcome: Result<T, CopyError>) -> Result<T, CopyError> {
        if let Err(error) = &outcome {
            self.shared.end_where_fatal(error).await;
        }
        outcome
    }

    /// Everything that this peer has, for one that wants to lead.
    pub async fn whole(&self) -> Result<Whole, CopyError> {
        let _turn = self.shared.turn.lock().await;
        self.shared.whole(self.shared.last().term).await
    }

    /// A peer says that it is about to end.
    pub fn peer_leaves(&self, node: u64) {
        self.shared.peers.leaves(node);
        self.shared.news();
    }

    /// This peer is about to end: it leads no more, and the others are told.
    pub async fn leave(&self) {
        self.shared.leave().await;
    }
}

impl Log for CopiedLog {
    fn propose(&self, id: ProposalId, entries: Vec<Bytes>) -> Result<(), ProposeError> {
        let epoch = self.shared.stand().leads_in();
        let epoch = epoch.ok_or_else(|| ProposeError::NotLeader {
            leader: self.shared.stand().leadership(self.shared.node).leader,
        })?;
        // The place in the channel is taken now, so that the task never waits for the reducer.
        let place = self.shared.events.clone().try_reserve_owned();
        let place = place.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ProposeError::Full,
            mpsc::error::TrySendError::Closed(_) => ProposeError::Store(Arc::new(StoreError::Closed)),
        })?;
        let proposed = Proposed {
            id,
            epoch,
            entries,
            place,
        };
        self.shared
            .queue
            .try_send(proposed)
            .map_err(|_| ProposeError::Full)
    }

    fn status(&self) -> LogStatus {
        let bounds = self.shared.store.bounds();
        LogStatus {
            leadership: self.shared.stand().leadership(self.shared.node),
            first_index: bounds.first_index,
            committed_index: bounds.next_index.saturating_sub(1),
        }
    }

    fn read(&self, from: u64, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        self.shared.store.read(from..u64::MAX, max_bytes)
    }

    fn newest_snapshot(&self) -> Result<Option<SnapshotReader>, StoreError> {
        self.shared.store.snapshots().newest()
    }

    fn begin_snapshot(&self, at: LogPosition) -> Result<SnapshotWriter, StoreError> {
        self.shared.store.snapshots().create(at)
    }

    fn compact(&self, snapshot: SnapshotWriter) -> Result<(), StoreError> {
        let (at, next_index) = (snapshot.position(), self.shared.store.bounds().next_index);
        if at.index >= next_index {
            return Err(StoreError::NotNext {
                expected: next_index,
                got: at.index,
            });
        }
        snapshot.finish()?;
        match self.shared.store.snapshots().purgeable()? {
            Some(at) => self.shared.store.commit(Batch::of(Op::Purge(at))).map(drop),
            None => Ok(()),
        }
    }

    fn install(&self, snapshot: SnapshotWriter) -> Result<(), StoreError> {
        let at = snapshot.position();
        self.shared.store.install(snapshot)?;
        let told = self
            .shared
            .events
            .blocking_send(LogEvent::SnapshotInstalled { at });
        told.map_err(|_| StoreError::Closed)
    }

    fn barrier(&self) -> BoxFuture<'_, Result<u64, ProposeError>> {
        let stand = self.shared.stand().clone();
        Box::pin(std::future::ready(match stand.leads_in() {
            Some(_) => Ok(self.status().committed_index),
            None => Err(ProposeError::NotLeader {
                leader: stand.leadership(self.shared.node).leader,
            }),
        }))
    }
}

#[cfg(test)]
mod tests;
