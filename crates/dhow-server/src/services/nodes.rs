//! The nodes of the cluster.

use dhow_core::ids::ReplicaKey;
use dhow_core::plan::PlanReport;
use dhow_core::state::{Drain, Node, State, Wanted};
use dhow_wire::{DrainWait, NodeDrainStatus, NodeState, NodeStatus};

use crate::log::Leadership;

/// What holds a drain up, as far as a person reads; a node may have thousands of replicas.
const DRAIN_WAITS_MAX: usize = 100;

pub(super) fn status(state: &State, report: &PlanReport, node: &Node, leadership: Leadership) -> NodeStatus {
    NodeStatus {
        node_id: node.id.0,
        role: node.info.role,
        status: NodeState::of(node.liveness, node.drain),
        leader: leadership.leader == Some(node.id.0),
        labels: node.labels().as_ref().clone(),
        replicas: node.reserving,
        os: Some(node.info.os.to_string()),
        arch: Some(node.info.arch.to_string()),
        api_addr: node.info.api_addr.as_ref().map(ToString::to_string),
        drain: drain(state, report, node),
    }
}

fn drain(state: &State, report: &PlanReport, node: &Node) -> Option<NodeDrainStatus> {
    match node.drain {
        Drain::No | Drain::Drained { .. } => return None,
        Drain::Draining { .. } => {}
    }
    let waits = node.replica_keys().filter_map(|key| wait(state, report, &key));
    // Those that cannot move first: nothing but a change of the cluster helps them.
    let (mut waiting, others): (Vec<DrainWait>, Vec<DrainWait>) = waits.partition(|wait| wait.cannot_move);
    waiting.extend(others);
    waiting.truncate(DRAIN_WAITS_MAX);
    Some(NodeDrainStatus { waiting })
}

fn wait(state: &State, report: &PlanReport, key: &ReplicaKey) -> Option<DrainWait> {
    let replica = state.replicas.get(key)?;
    if replica.wanted != Wanted::Run || !replica.reserves() {
        return None;
    }
    let name = state.replica_name(key)?;
    let why = report.services.get(&key.service)?.why(&name.role, key.slot)?;
    Some(DrainWait {
        replica: name.to_string(),
        why: why.to_string(),
        cannot_move: why.is_stuck(),
    })
}
