//! The safety valve: it remembers who fell silent lately, and says when that is so many that the one who listens must
//! be ill.

use std::collections::{BTreeMap, BTreeSet};

use super::alarm::LeaseAlarm;
use crate::ids::NodeId;

/// Below this many nodes half of them may well be one machine.
const NODES_MIN: usize = 20;
/// A grace of less would make every timer late and every window empty.
const GRACE_MIN_MS: u64 = 1_000;

/// Silence that stands: not answered by a heartbeat, and not too long ago. Evidence counts for one grace, because a
/// leader that loses its network loses all connections at once; a heartbeat that did not come counts for a time to live
/// and a grace, because those of all nodes are spread over that.
#[derive(Clone, Debug, Default)]
pub(super) struct Valve {
    /// The last moment at which each counts.
    until_ms: BTreeMap<NodeId, u64>,
    by_time: BTreeSet<(u64, NodeId)>,
    /// Those of them whose lease has ended: they have left the table and still count.
    ended: BTreeSet<NodeId>,
}

impl Valve {
    /// Records that a node fell silent at `now_ms`, and for how long that counts.
    pub fn notice(&mut self, node: NodeId, now_ms: u64, window_ms: u64) {
        let until_ms = now_ms.saturating_add(window_ms.max(GRACE_MIN_MS));
        let known_ms = self.until_ms.get(&node).copied();
        self.forget(node);
        let until_ms = until_ms.max(known_ms.unwrap_or(0));
        self.until_ms.insert(node, until_ms);
        self.by_time.insert((until_ms, node));
    }

    /// Takes evidence back: the node is heard, or gone for good.
    pub fn forget(&mut self, node: NodeId) {
        if let Some(until_ms) = self.until_ms.remove(&node) {
            self.by_time.remove(&(until_ms, node));
            self.ended.remove(&node);
        }
    }

    /// The lease of the node has run out.
    pub fn end(&mut self, node: NodeId) {
        if self.until_ms.contains_key(&node) {
            self.ended.insert(node);
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether more than half of at least twenty nodes have fallen silent lately; `live` counts those that still have a
    /// lease.
    pub fn many_silent(&mut self, live: usize, now_ms: u64) -> Option<LeaseAlarm> {
        while let Some(&(until_ms, node)) = self.by_time.first() {
            if until_ms >= now_ms {
                break;
            }
            self.forget(node);
        }
        let silent = self.until_ms.len();
        let nodes = live + self.ended.len();
        (nodes >= NODES_MIN && silent > nodes / 2).then_some(LeaseAlarm::ManySilent { silent, nodes })
    }

    /// Whether a timer that was due at `due_ms` fires so late that heartbeats may have been missed.
    pub fn late_timer(due_ms: u64, now_ms: u64, grace_ms: u64) -> Option<LeaseAlarm> {
        let late_ms = now_ms.saturating_sub(due_ms);
        (late_ms > grace_ms.max(GRACE_MIN_MS) / 2).then_some(LeaseAlarm::LateTimer { late_ms })
    }
}
