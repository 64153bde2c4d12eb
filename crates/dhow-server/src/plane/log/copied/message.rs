//! What peers say to each other about the log.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::plane::log::store::Entry;

/// What a peer of a static cluster answers to the heartbeat of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerBeat {
    /// The epoch and the index of the last entry.
    pub epoch: u64,
    pub index: u64,
    /// The highest epoch that the peer has promised to.
    pub promised: u64,
    /// Whether it leads.
    pub leads: bool,
    /// Whether it is about to end.
    pub leaving: bool,
    /// Of the peers in its configuration.
    pub peers_hash: Option<u32>,
}

/// A peer wants to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub node: u64,
    pub epoch: u64,
}

/// What a peer answers to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimAnswer {
    /// Nothing of an older epoch is taken from now on; this is what the peer has.
    Granted(CopyAge),
    /// A higher epoch was promised to.
    Promised { epoch: u64 },
    /// A peer with a lower id is there: that one leads.
    Lower { node: u64 },
}

/// How new a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyAge {
    /// Changes by people in it.
    pub edits: u64,
    pub epoch: u64,
    pub index: u64,
    pub revision: u64,
    pub time_ms: u64,
}

impl CopyAge {
    /// The newest copy has the most changes by people: a half without such a change never wins over one with some,
    /// however often its leaders changed.
    pub fn rank(&self) -> (u64, u64, u64) {
        (self.edits, self.epoch, self.index)
    }
}

/// Entries of an epoch, each after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    pub node: u64,
    pub epoch: u64,
    /// May be empty: then it only says who leads.
    pub entries: Vec<Entry>,
}

/// The state at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    pub node: u64,
    pub epoch: u64,
    pub index: u64,
    /// As a snapshot is written.
    pub bytes: Bytes,
}

/// What a peer answers to copies of entries or to a whole state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyAnswer {
    /// Everything up to here is durable at the peer.
    Durable { index: u64 },
    /// The peer has another epoch or misses what comes before; its log ends here.
    Behind { epoch: u64, index: u64 },
    /// A higher epoch was promised to: the sender leads no more.
    Promised { epoch: u64 },
    /// The peer's log is longer than this copy: it has to be claimed again.
    Ahead { index: u64 },
}
