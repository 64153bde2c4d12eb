//! The log: commands go in as proposals and come back, in one order on every server, as committed entries.
//!
//! Called by the reducer task alone, which owns the state. It proposes without waiting and takes the committed
//! entries from a channel of its own, so that what comes back from the log never waits behind its inbox. The
//! log holds bytes; what they mean is the reducer's business. It must never show an entry that is not durable.

pub mod copied;
pub mod local;
pub mod raft;
mod recovery;
pub mod store;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;

pub use recovery::{RecoverError, Recovered, load_snapshot, recover, recover_kept, recover_with};
use store::{Entry, LogPosition, SnapshotReader, SnapshotWriter, StoreError};

/// Names a proposal, so that its maker knows it again when it comes back. Chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId(pub u64);

/// What the log tells the reducer, in the order of the log.
#[derive(Debug)]
pub enum LogEvent {
    /// Proposals are durable and will never change. They follow those of the event before. All of them are applied, then
    /// the position is reached; where there are none, only the position moves.
    Committed {
        /// Where the last of their entries stands.
        at: LogPosition,
        /// The proposals, in order.
        parts: Vec<CommittedPart>,
    },
    /// A proposal did not make it. Where the disk failed it may still be found when the log is opened again.
    Refused {
        /// The proposal.
        proposal: ProposalId,
        /// Why.
        cause: ProposeError,
    },
    /// Who leads has changed.
    Leadership(Leadership),
    /// The state was replaced by a snapshot from another server: read it, then go on after it.
    SnapshotInstalled {
        /// The position it is of.
        at: LogPosition,
    },
    /// The log has stopped for good; nothing follows.
    Failed(Arc<StoreError>),
}

impl LogEvent {
    /// One proposal is durable, at as many positions as it has entries. Its maker names at least one.
    pub fn committed(proposal: Option<ProposalId>, entries: Vec<Entry>) -> Self {
        let at = entries.last().map(Entry::position).unwrap_or_default();
        let parts = vec![CommittedPart { proposal, entries }];
        Self::Committed { at, parts }
    }
}

/// One proposal inside [`LogEvent::Committed`].
#[derive(Debug)]
pub struct CommittedPart {
    /// The proposal, where it was made on this server and its maker still waits for it.
    pub proposal: Option<ProposalId>,
    /// What was proposed, in order. A replicated log packs many proposals into one entry, whose position all of them
    /// have.
    pub entries: Vec<Entry>,
}

/// Who leads, in which term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The term.
    pub term: u64,
    /// The node that leads, if one is known.
    pub leader: Option<u64>,
    /// Whether it is this one.
    pub is_here: bool,
}

/// What the log is at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStatus {
    /// Who leads.
    pub leadership: Leadership,
    /// First index that can be read.
    pub first_index: u64,
    /// Last index that is committed; 0 where there is none.
    pub committed_index: u64,
}

/// Why a proposal was not taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProposeError {
    /// Too many proposals are on their way.
    #[error("too many changes are on their way to the log; try again shortly")]
    Full,
    /// Another node leads.
    #[error("this node does not lead{}", Named(*leader))]
    NotLeader {
        /// The node that does, if one is known.
        leader: Option<u64>,
    },
    /// It was handed on, and nobody can say whether it will be committed.
    #[error("it is not known whether the change was made")]
    Unknown,
    /// The log cannot take it.
    #[error("the log did not take the change")]
    Store(#[source] Arc<StoreError>),
}

impl From<StoreError> for ProposeError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy { .. } => ProposeError::Full,
            StoreError::Locked { .. }
            | StoreError::Damaged { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::Io { .. }
            | StoreError::NoSpace { .. }
            | StoreError::Poisoned { .. }
            | StoreError::TooLarge { .. }
            | StoreError::NotNext { .. }
            | StoreError::BadTruncate { .. }
            | StoreError::IndexExhausted { .. }
            | StoreError::Compacted { .. }
            | StoreError::Closed
            | StoreError::BadOptions { .. } => ProposeError::Store(Arc::new(error)),
        }
    }
}

struct Named(Option<u64>);

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(leader) => write!(f, ", node {leader} does"),
            None => f.write_str(" and knows no leader"),
        }
    }
}

/// So many terms above the own one are no elections that were missed: the cluster was restored or recovered, or this
/// server has the files of an earlier one.
const TERMS_FAR: u64 = 1 << 16;

/// Says that another server shows a higher term than is known here.
fn note_higher_term(from: u64, shown: u64, known: u64) {
    if shown <= known {
        return;
    }
    match shown - known > TERMS_FAR && known > 0 {
        true => tracing::warn!(
            from,
            shown,
            known,
            "a server shows a term far above this one's: the cluster was restored or recovered meanwhile, or this \
             server was begun from an older copy"
        ),
        false => tracing::info!(from, shown, known, "a server shows a higher term"),
    }
}

/// A log of committed entries: [`local::LocalLog`] of a single node, [`copied::CopiedLog`] of a static cluster,
/// [`raft::RaftLog`] of the others.
pub trait Log: Send + Sync {
    /// Hands in entries that are to be committed together and in this order. Never waits: the outcome comes as a
    /// [`LogEvent`] that carries `id`, unless this returns an error.
    fn propose(&self, id: ProposalId, entries: Vec<Bytes>) -> Result<(), ProposeError>;

    /// What the log is at this moment.
    fn status(&self) -> LogStatus;

    /// Committed entries from an index on, as many as fit into `max_bytes`, but one where there is one. For the
    /// replay after a start. Blocks the thread.
    fn read(&self, from: u64, max_bytes: usize) -> Result<Vec<Entry>, StoreError>;

    /// The newest snapshot, to start from. Blocks the thread.
    fn newest_snapshot(&self) -> Result<Option<SnapshotReader>, StoreError>;

    /// Begins a snapshot of the state after the entry at this position. Blocks the thread.
    fn begin_snapshot(&self, at: LogPosition) -> Result<SnapshotWriter, StoreError>;

    /// Finishes a snapshot that was made here, and lets the log forget what the snapshot before
    /// it covers. Blocks the thread.
    fn compact(&self, snapshot: SnapshotWriter) -> Result<(), StoreError>;

    /// Finishes a snapshot that came from elsewhere, and goes on after it. Blocks the thread.
    fn install(&self, snapshot: SnapshotWriter) -> Result<(), StoreError>;

    /// The index that must be applied before a read sees everything that was acknowledged, by whichever server,
    /// before this was called. Asks the other servers where there are some.
    fn barrier(&self) -> BoxFuture<'_, Result<u64, ProposeError>>;

    /// Ends the work that the log does beside its callers, before the last handle is dropped.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
