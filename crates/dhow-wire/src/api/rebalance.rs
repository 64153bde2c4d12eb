//! `dhow rebalance`: what moving replicas would bring, and that it is asked for.

use dhow_core::ids::{ReplicaKey, replica_id};
use dhow_core::rebalance::Proposal;
use dhow_core::state::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Moves, and what nodes have before and after them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RebalancePlan {
    pub moves: Vec<PlannedMove>,
    pub nodes: Vec<NodeFigures>,
    /// There is more to move than was asked for.
    pub more: bool,
    /// Replicas that are still to go by a rebalance that was begun.
    pub under_way: u32,
}

/// One replica that would go to another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedMove {
    pub deployment: String,
    pub replica: String,
    pub from: u64,
    pub to: u64,
}

/// What a node has before the moves and would have after them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeFigures {
    pub node_id: u64,
    pub replicas: u32,
    pub replicas_after: u32,
    pub cpu_milli: u64,
    pub cpu_milli_after: u64,
    pub cpu_milli_total: u64,
    pub memory_bytes: u64,
    pub memory_bytes_after: u64,
    pub memory_bytes_total: u64,
}

/// Asks for a rebalance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RebalanceRequest {
    /// Of this deployment alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// At most so many replicas are moved; 1,000 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// What has not gone yet stays where it is, and nothing is begun.
    #[serde(default)]
    pub stop: bool,
}

impl RebalancePlan {
    /// What was worked out from a state.
    pub fn of(state: &State, proposal: &Proposal) -> Self {
        let moves = proposal.moves.iter().filter_map(|made| {
            let (deployment, replica) = named(state, &made.replica)?;
            Some(PlannedMove {
                deployment,
                replica,
                from: made.from.0,
                to: made.to.0,
            })
        });
        let nodes = proposal.loads.iter().map(|load| NodeFigures {
            node_id: load.node.0,
            replicas: load.replicas.0,
            replicas_after: load.replicas.1,
            cpu_milli: load.used.0.cpu_milli,
            cpu_milli_after: load.used.1.cpu_milli,
            cpu_milli_total: load.capacity.cpu_milli,
            memory_bytes: load.used.0.memory_bytes,
            memory_bytes_after: load.used.1.memory_bytes,
            memory_bytes_total: load.capacity.memory_bytes,
        });
        let on_their_way = state
            .replicas
            .values()
            .filter(|replica| replica.moves_to.is_some());
        Self {
            moves: moves.collect(),
            nodes: nodes.collect(),
            more: proposal.is_cut,
            under_way: u32::try_from(on_their_way.count()).unwrap_or(u32::MAX),
        }
    }
}

fn named(state: &State, key: &ReplicaKey) -> Option<(String, String)> {
    let service = state.service(key.service)?;
    let role = service.role(key.slot.role)?;
    let id = replica_id(&service.key.service, role, key.slot.index);
    Some((service.key.deployment.to_string(), id))
}
