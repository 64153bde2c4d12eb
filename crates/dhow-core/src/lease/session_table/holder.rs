//! What the leader knows of one server that has sessions.

use std::collections::{BTreeSet, VecDeque};

use super::super::holder_beat::SessionId;
use crate::ids::NodeId;

/// A server waits at least three seconds for the answer to a ping: a session that breaks sooner after its last sign was
/// broken off by the other side, whose host lives and is heard.
pub(super) const SILENCE_MS: u64 = 2_500;

/// A server that has sessions.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub boot: u64,
    pub seq: u64,
    pub beat_ms: u64,
    /// Since when it has not been silent: what it says of the time before is its own fault as well as a node's.
    pub steady_since_ms: u64,
    /// Since when it has said that it serves all.
    pub fresh_since_ms: Option<u64>,
    /// How much of the log it has said to have.
    pub applied_index: Option<u64>,
    /// Whether it has named all its sessions to this leader.
    pub is_whole: bool,
    /// Whether it is silent, so that the leases of its nodes were prolonged.
    pub is_silent: bool,
    pub nodes: BTreeSet<NodeId>,
    /// Sessions that broke within the last grace, the last one of each node, in the order in which holders told it.
    pub broke: VecDeque<Break>,
    /// So many of its sessions break that it must be the holder that is ill: until when its breaks are no evidence.
    pub ill_until_ms: Option<u64>,
    /// When it last heard any node but its own; none where it has not said.
    pub hears_ms: Option<u64>,
    /// Whether it hears nobody, so that the leases of its nodes were prolonged.
    pub is_deaf: bool,
}

impl Holder {
    /// One that is heard for the first time now.
    pub fn new(boot: u64, now_ms: u64) -> Self {
        Self {
            boot,
            seq: 0,
            beat_ms: now_ms,
            steady_since_ms: now_ms,
            fresh_since_ms: None,
            applied_index: None,
            is_whole: false,
            is_silent: false,
            nodes: BTreeSet::new(),
            broke: VecDeque::new(),
            ill_until_ms: None,
            hears_ms: None,
            is_deaf: false,
        }
    }

    /// The nodes that it has, or has missed lately, but for its own: that one is on the same machine.
    pub fn others(&self, own: NodeId) -> BTreeSet<NodeId> {
        let missed = self.broke.iter().filter(|broke| broke.is_silence());
        let all = self.nodes.iter().copied().chain(missed.map(|broke| broke.node));
        all.filter(|node| *node != own).collect()
    }
}

/// A session that broke, as its holder told it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Break {
    pub told_ms: u64,
    pub last_sign_ms: u64,
    pub node: NodeId,
    pub session: SessionId,
}

impl Break {
    /// Whether its holder missed the node, and was not told by the node's host that the connection ended.
    pub fn is_silence(&self) -> bool {
        self.told_ms.saturating_sub(self.last_sign_ms) >= SILENCE_MS
    }
}
