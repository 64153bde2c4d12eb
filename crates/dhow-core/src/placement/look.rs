//! Looking at nodes without placing anything: how a replica that is there lies. For a planner of moves.

use std::cmp::Ordering;

use super::ask::Ask;
use super::marks::{Marks, ZONE_UNLABELLED};
use super::node_table::NodeTable;
use super::requirement::Requirement;
use super::share::Share;
use crate::ids::NodeId;

/// How a replica lies on a node, by the questions of placement. The lower, the better, but for `liked`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The node has the labels and the platform that are asked for.
    pub suits: bool,
    /// What its zone has beside the replica, in relation to what it is to have; and whether it is in none.
    pub zone: (u64, bool),
    /// Preferred labels and neighbours that the node has.
    pub liked: u32,
    /// Others of the service there.
    pub beside: u32,
    pub fullness: Fullness,
}

/// How full a node is with the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fullness {
    share: Share,
    replicas: u32,
}

impl Fullness {
    /// Whether it is less by a tenth at least: of what is used, or of replicas where they use alike.
    pub fn is_clearly_below(&self, other: &Self) -> bool {
        let replicas = |times: u64, of: &Self| u64::from(of.replicas) * times;
        match self.share.cmp(&other.share) {
            Ordering::Less => self.share.is_below_by_a_tenth(other.share),
            Ordering::Equal => replicas(10, self) <= replicas(9, other),
            Ordering::Greater => false,
        }
    }
}

impl NodeTable {
    /// How each of the nodes lies for one of the replicas that the ask says are there; its own does not count against it.
    pub fn look_at_present(&self, ask: &Ask<'_>, nodes: &[NodeId]) -> Vec<Look> {
        let spread_by = ask.spec.affinity_of(ask.role).spread_by;
        let marks = Marks::new(self, ask, spread_by.as_deref());
        let look = |id: &NodeId| self.look(ask, *id, &marks, 1);
        nodes.iter().filter_map(look).collect()
    }

    /// How a node lies for a replica that was placed there and is not among those present.
    pub fn look_at(&self, ask: &Ask<'_>, node: NodeId) -> Option<Look> {
        let spread_by = ask.spec.affinity_of(ask.role).spread_by;
        let marks = Marks::new(self, ask, spread_by.as_deref());
        self.look(ask, node, &marks, 0)
    }

    fn look(&self, ask: &Ask<'_>, id: NodeId, marks: &Marks, own: u32) -> Option<Look> {
        let row = self.find(id)?;
        let (node, mark) = (self.node(row), marks.of(row));
        Some(Look {
            suits: mark.met == Requirement::count(ask.spec),
            zone: (
                marks.zone_need_without(mark.zone, own),
                mark.zone == ZONE_UNLABELLED,
            ),
            liked: mark.liked,
            beside: mark.own.saturating_sub(own),
            fullness: Fullness {
                share: Share::dominant(node.used, node.capacity),
                replicas: node.replicas,
            },
        })
    }
}
