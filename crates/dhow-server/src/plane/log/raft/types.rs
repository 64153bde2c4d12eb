//! The types that the consensus library is used with, and what they are called here.

use openraft::impls::OneshotResponder;
use openraft::{CommittedLeaderId, LogId, TokioRuntime};
use serde::{Deserialize, Serialize};

use super::blob::Blob;
use super::options::RaftPeerAddrs;
use super::snapshot_data::SnapshotData;
use crate::plane::log::store::LogPosition;

openraft::declare_raft_types!(
    /// The types with which this crate uses the consensus library.
    pub TypeConfig:
        D = Batch,
        R = (),
        NodeId = u64,
        Node = RaftPeerAddrs,
        Entry = openraft::Entry<TypeConfig>,
        SnapshotData = SnapshotData,
        Responder = OneshotResponder<TypeConfig>,
        AsyncRuntime = TokioRuntime,
);

pub type Raft = openraft::Raft<TypeConfig>;
pub type Vote = openraft::Vote<u64>;
pub type RaftLogId = LogId<u64>;
pub type RaftEntry = openraft::Entry<TypeConfig>;
pub type Membership = openraft::Membership<u64, RaftPeerAddrs>;
pub type StoredMembership = openraft::StoredMembership<u64, RaftPeerAddrs>;
pub type SnapshotMeta = openraft::SnapshotMeta<u64, RaftPeerAddrs>;
pub type StorageError = openraft::StorageError<u64>;

/// Many proposals in one entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    pub tag: BatchTag,
    pub commands: Vec<Blob>,
}

/// Names a batch for good: a leader that restarts goes on in the same term, so that counting alone would not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BatchTag {
    /// The node that packed it.
    pub node: u64,
    /// Drawn each time a log is opened.
    pub life: u64,
    /// Counted from then on.
    pub number: u64,
}

pub fn log_id(at: LogPosition) -> RaftLogId {
    LogId::new(CommittedLeaderId::new(at.term, 0), at.index)
}

pub fn position(id: &RaftLogId) -> LogPosition {
    LogPosition {
        index: id.index,
        term: id.leader_id.term,
    }
}
