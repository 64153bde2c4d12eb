//! The nodes of the cluster.

use dhow_core::ids::ReplicaKey;
use dhow_core::lease::{WorkerLease, WorkerProfile};
use dhow_core::plan::PlanReport;
use dhow_core::state::{Drain, Node, NodeInfo, State, Wanted};
use dhow_wire::{DrainWait, NodeAmounts, NodeDrainStatus, NodeState, NodeStatus, ResourceAmount};

use crate::log::Leadership;
use crate::runtime::{Observed, SeenLease};

/// What holds a drain up, as far as a person reads; a node may have thousands of replicas.
const DRAIN_WAITS_MAX: usize = 100;

pub(super) fn status(
    state: &State,
    report: &PlanReport,
    node: &Node,
    leadership: Leadership,
    observed: &Observed,
) -> NodeStatus {
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
        resources: Some(resources(node, observed)),
        lease: observed.lease(node.id).map(|seen| lease(node, seen)),
    }
}

/// What a node that cannot be reached once used says nothing.
fn resources(node: &Node, observed: &Observed) -> NodeAmounts {
    let used = observed.usage(node.id).filter(|_| node.is_ready());
    NodeAmounts {
        capacity: node.info.capacity.into(),
        reserved: node.used.into(),
        used: used.map(|used| ResourceAmount {
            cpu_milli: used.cpu_milli,
            memory_bytes: used.memory_bytes,
        }),
    }
}

fn lease(node: &Node, seen: SeenLease) -> WorkerLease {
    WorkerLease {
        node_id: node.id.0,
        profile: profile(&node.info),
        acquired_unix_secs: seen.acquired_unix_secs,
        renewed_unix_secs: seen.renewed_unix_secs,
        ttl_secs: seen.ttl_secs,
        grace_secs: seen.grace_secs,
    }
}

fn profile(info: &NodeInfo) -> WorkerProfile {
    let addr = info.api_addr.as_deref().and_then(|addr| addr.parse().ok());
    WorkerProfile {
        // The record has a place for an address; one that takes no calls has none.
        api_addr: addr.unwrap_or_else(|| ([0, 0, 0, 0], 0).into()),
        os: info.os.to_string(),
        arch: info.arch.to_string(),
        labels: info.labels.as_ref().clone(),
        cpu_total: u32::try_from(info.capacity.cpu_milli / 1_000).unwrap_or(u32::MAX),
        memory_total_bytes: info.capacity.memory_bytes,
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
