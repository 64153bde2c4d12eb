//! What is to be placed.

use super::node_row::NodeRow;
use super::rules::Rules;
use crate::amount::Amount;
use crate::ids::{NodeId, RoleName, ServiceId};
use crate::spec::{NodeMode, ServiceSpec};

/// A question to the table: where would a replica like this go?
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub service: ServiceId,
    pub spec: &'a ServiceSpec,
    pub role: &'a RoleName,
    /// What one replica reserves.
    pub demand: Amount,
    /// How many replicas of this service are on which node already. Best in ascending order of node ids (then
    /// each entry is found without a search); entries of one node add up, unknown nodes are passed over.
    pub present: &'a [(NodeId, u32)],
    /// The one node that may be used: it keeps the named volume, or a system service's replica is its own.
    pub bound_to: Option<NodeId>,
    /// Nodes that must not be used, such as one where an older replica with the same key is still stopping.
    pub avoid: &'a [NodeId],
    pub rules: Rules<'a>,
}

impl Ask<'_> {
    /// How many of these the node has room for, its openness and the rules aside; the largest number stands for no
    /// bound.
    pub(super) fn room_on(&self, node: &NodeRow) -> u32 {
        let free = node.free();
        let times = |free: u64, demand: u64| free.checked_div(demand).unwrap_or(u64::MAX);
        let room = times(free.cpu_milli, self.demand.cpu_milli)
            .min(times(free.memory_bytes, self.demand.memory_bytes));
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        match self.spec.node_mode {
            NodeMode::Shared | NodeMode::Dedicated => room,
            NodeMode::Exclusive => room.min(1),
        }
    }

    /// The one node that need be looked at: none where rules ask for a look at others too.
    pub(super) fn alone(&self) -> Option<NodeId> {
        self.bound_to.filter(|_| self.rules.is_empty())
    }

    /// How many of this service's replicas are on one node.
    pub(super) fn present_on(&self, id: NodeId) -> u32 {
        let here = self.present.iter().filter(|(node, _)| *node == id);
        here.fold(0, |sum: u32, (_, count)| sum.saturating_add(*count))
    }
}
