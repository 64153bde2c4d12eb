//! Which replicas would be moved so that services lie as they would if they were placed today. A pure planner of moves: it
//! is asked by a person, never runs by itself, and what it gives is a proposal. Called by `dhow plan rebalance` and by
//! `dhow rebalance`, which writes the moves into the state.
//!
//! Each move is worth something by the questions of placement, asked in the same order: a rule that is broken today, the
//! zone, preferred labels, the service's replicas on the node, the room. So it ends, and a cluster that was rebalanced
//! has nothing more to move. It never moves what is bound to its node: volumes, pinned or packed services, jobs, what runs
//! on every node, and what is under way anyway.

mod search;
mod standing;

use crate::amount::Amount;
use crate::command::ReplicaMove;
use crate::ids::{DeploymentName, NodeId, ReplicaKey};
use crate::placement::NodeTable;
use crate::plan::node_row;
use crate::spec::{AffinityMode, NodeMode, RType};
use crate::state::{Replica, Service, State, Wanted};

use search::Search;

/// Moves of one rebalance: as many as a person can look through, and far below what an entry of the log holds.
pub const MOVES_MAX: u32 = 1_000;

/// What is to be looked at.
#[derive(Clone, Debug)]
pub struct Scope {
    pub deployment: Option<DeploymentName>,
    /// No more moves than this, nor than [`MOVES_MAX`].
    pub moves_max: u32,
}

/// A node before the moves and after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub node: NodeId,
    pub capacity: Amount,
    pub replicas: (u32, u32),
    pub used: (Amount, Amount),
}

/// What a rebalance would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposal {
    /// By replica.
    pub moves: Vec<ReplicaMove>,
    /// Every node that may run replicas, by id.
    pub loads: Vec<Load>,
    /// There is more to move than was asked for.
    pub is_cut: bool,
}

/// Works out the moves.
pub fn propose(state: &State, scope: &Scope) -> Proposal {
    let mut table = NodeTable::new();
    for node in state.nodes.values().filter(|node| node.info.runs_replicas) {
        table.upsert(node_row(node));
    }
    let before: Vec<(NodeId, u32, Amount)> = table
        .nodes()
        .map(|row| (row.id, row.replicas, row.used))
        .collect();
    let services = state.services.values().filter(|service| {
        let name = scope.deployment.as_ref();
        name.is_none_or(|name| *name == service.key.deployment) && may_move(state, service)
    });
    let mut search = Search::new(state, table, scope.moves_max.min(MOVES_MAX), services);
    search.run();
    let (table, moves, is_cut) = search.into_found();
    let loads = before.into_iter().filter_map(|(node, replicas, used)| {
        let row = table.get(node)?;
        Some(Load {
            node,
            capacity: row.capacity,
            replicas: (replicas, row.replicas),
            used: (used, row.used),
        })
    });
    Proposal {
        loads: loads.collect(),
        moves,
        is_cut,
    }
}

/// Whether replicas of the service may be moved at all, and nothing about it is under way.
pub(crate) fn may_move(state: &State, service: &Service) -> bool {
    let Some(spec) = service.spec() else { return false };
    let spreads = |role| spec.affinity_of(role).mode == AffinityMode::Spread;
    let is_free = spec.rtype == RType::Service
        && !spec.has_named_storage()
        && spec.node_mode == NodeMode::Shared
        && service.roles.iter().all(spreads);
    let deployment = state.deployment(&service.key.deployment);
    let is_quiet = service.released
        && !service.removing
        && !service.rolling
        && !service.held
        && service.canary_base().is_none()
        && deployment.is_some_and(|known| !known.is_under_way());
    is_free && is_quiet
}

/// Whether this replica may be moved: it serves where it is, and nobody has told it to go.
pub(crate) fn is_movable(state: &State, service: &Service, key: &ReplicaKey, replica: &Replica) -> bool {
    let stays = state
        .node(replica.node)
        .is_some_and(|node| node.is_ready() && !node.is_draining());
    stays
        && service.is_current(key.generation)
        && replica.wanted == Wanted::Run
        && replica.is_healthy()
        && replica.moves_to.is_none()
}
