//! The score of a node: lower is better, and no two nodes have the same.

use super::ask::Ask;
use super::marks::Mark;
use super::node_row::NodeRow;
use super::share::Share;
use crate::ids::NodeId;

/// Compared field by field from the top. What should be high is stored upside down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    lead: [u32; 3],
    share: Share,
    replicas: u32,
    id: NodeId,
}

/// Which of two feasible nodes of one zone is better.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Preferred labels, fewest of this service's, lowest share once placed, fewest replicas in all.
    Spread,
    /// Most of this service's, preferred labels, most room, highest share once placed.
    Pack,
}

impl Order {
    /// `allowed` is how many more of the service the node may have by its rules.
    pub(super) fn rank(self, ask: &Ask<'_>, node: &NodeRow, (mark, allowed): (&Mark, u32)) -> Rank {
        let share = Share::dominant(node.used.plus(ask.demand), node.capacity);
        match self {
            Self::Spread => Rank {
                lead: [u32::MAX - mark.liked, mark.own, 0],
                share,
                replicas: node.replicas,
                id: node.id,
            },
            Self::Pack => Rank {
                lead: [
                    u32::MAX - mark.own,
                    u32::MAX - mark.liked,
                    u32::MAX - ask.room_on(node).min(allowed),
                ],
                share: share.reversed(),
                replicas: 0,
                id: node.id,
            },
        }
    }
}
