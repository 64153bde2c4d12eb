//! How often doubts about a node's reports are told. A node whose reports are refused sends them again and again, as
//! thousands of nodes may after a restore: the event log has room for one a minute of each.
//!
//! This is kept by each server beside its event log and not in State: nothing is decided by it, and the times are the
//! cluster's own, so that servers that have seen the same entries tell the same.

use std::collections::BTreeMap;

use dhow_core::ids::NodeId;
use dhow_core::state::State;
use dhow_core::time::ClusterTime;

use crate::plane::runtime::limits::REPORT_DOUBT_EVERY_MS;

/// Whether a refused or diverged report becomes an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It does, and says how many before it did not.
    Told {
        untold: u64,
    },
    Untold,
}

#[derive(Debug)]
struct LastDoubt {
    told: ClusterTime,
    untold: u64,
}

impl LastDoubt {
    fn is_recent(&self, now: ClusterTime) -> bool {
        now.0.saturating_sub(self.told.0) < REPORT_DOUBT_EVERY_MS
    }
}

/// The last doubts that were told, at most one for each node of the largest cluster.
#[derive(Debug, Default)]
pub(super) struct ReportDoubts {
    nodes: BTreeMap<NodeId, LastDoubt>,
}

impl ReportDoubts {
    /// Counts a refused or diverged report and says whether it becomes an event.
    pub fn doubt(&mut self, node: NodeId, now: ClusterTime) -> Doubt {
        if let Some(last) = self.nodes.get_mut(&node).filter(|last| last.is_recent(now)) {
            last.untold = last.untold.saturating_add(1);
            return Doubt::Untold;
        }
        // Nodes that are unknown may have any id.
        if self.nodes.len() >= State::NODES_MAX && !self.nodes.contains_key(&node) {
            self.nodes.retain(|_, last| last.is_recent(now));
            if self.nodes.len() >= State::NODES_MAX {
                return Doubt::Untold;
            }
        }
        let told = LastDoubt { told: now, untold: 0 };
        let before = self.nodes.insert(node, told);
        Doubt::Told {
            untold: before.map_or(0, |last| last.untold),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_doubted_once_a_minute_and_the_rest_is_counted() {
        let mut doubts = ReportDoubts::default();
        let at = |ms: u64| ClusterTime(5_000 + ms);
        assert_eq!(doubts.doubt(NodeId(1), at(0)), Doubt::Told { untold: 0 });
        assert_eq!(doubts.doubt(NodeId(1), at(1)), Doubt::Untold);
        assert_eq!(doubts.doubt(NodeId(2), at(1)), Doubt::Told { untold: 0 });
        assert_eq!(doubts.doubt(NodeId(1), at(59_999)), Doubt::Untold);
        assert_eq!(doubts.doubt(NodeId(1), at(60_000)), Doubt::Told { untold: 2 });
        assert_eq!(doubts.doubt(NodeId(1), at(60_001)), Doubt::Untold);
    }

    #[test]
    fn ids_that_nobody_has_fill_no_memory() {
        let mut doubts = ReportDoubts::default();
        for node in 0..State::NODES_MAX as u64 {
            assert_eq!(
                doubts.doubt(NodeId(node), ClusterTime(0)),
                Doubt::Told { untold: 0 }
            );
        }
        assert_eq!(doubts.doubt(NodeId(u64::MAX), ClusterTime(1)), Doubt::Untold);
        let later = ClusterTime(REPORT_DOUBT_EVERY_MS);
        assert_eq!(doubts.doubt(NodeId(u64::MAX), later), Doubt::Told { untold: 0 });
        assert_eq!(doubts.nodes.len(), 1);
    }
}
