//! The nodes of the cluster.

use std::collections::BTreeSet;

use dhow_core::ids::{NodeId, ReplicaKey};
use dhow_core::lease::{WorkerLease, WorkerProfile};
use dhow_core::plan::{PlanReport, Why};
use dhow_core::state::{Drain, Node, NodeInfo, State, Wanted};
use dhow_core::time::ClusterTime;
use dhow_wire::{
    DrainWait, NodeAmounts, NodeDrainStatus, NodeFailures, NodeState, NodeStatus, ResourceAmount,
};

use crate::plane::log::Leadership;
use crate::plane::runtime::{Observed, SeenLease};

/// What holds a drain up, as far as a person reads; a node may have thousands of replicas.
const DRAIN_WAITS_MAX: usize = 100;

/// Services that fail on one node that make people look at the node: two may be a coincidence.
const SUSPECT_SERVICES: usize = 3;
/// Failures in a row after which a replica counts as failing, wherever it is bound to be.
const FAILING: u32 = 3;
/// Services that are named.
const FAILURES_MAX: usize = 100;

pub(super) fn status(
    state: &State,
    report: &PlanReport,
    node: &Node,
    leadership: Leadership,
    observed: &Observed,
    now: ClusterTime,
) -> NodeStatus {
    NodeStatus {
        node_id: node.id.0,
        role: node.info.role,
        status: NodeState::of(node.liveness, node.drain),
        leader: leadership.leader == Some(node.id.0),
        labels: node.labels().as_ref().clone(),
        replicas: node.reserving,
        runs_replicas: node.info.runs_replicas,
        os: Some(node.info.os.to_string()),
        arch: Some(node.info.arch.to_string()),
        api_addr: node.info.api_addr.as_ref().map(ToString::to_string),
        mesh_addr: node.info.mesh_addr.as_deref().map(str::to_owned),
        drain: drain(state, report, node, now),
        failures: None,
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

/// The services that fail on a node: those that left it for that, and those that fail there now. None where there
/// are none.
pub(super) fn failures(state: &State, node: &Node, now: ClusterTime) -> Option<NodeFailures> {
    let left = state.services.values().filter(|service| {
        let mut recent = service.recently_failed_on(now);
        recent.any(|failed| failed.node == node.id)
    });
    let fails = |key: &ReplicaKey| {
        let replica = state.replicas.get(key);
        replica.is_some_and(|replica| replica.node_failures >= FAILING && !replica.is_healthy())
    };
    let here = node.replica_keys().filter(fails);
    let here = here.filter_map(|key| state.service(key.service));
    let services: BTreeSet<String> = left.chain(here).map(|service| service.key.to_string()).collect();
    let suspect = services.len() >= SUSPECT_SERVICES;
    let services: Vec<String> = services.into_iter().take(FAILURES_MAX).collect();
    (!services.is_empty()).then_some(NodeFailures { services, suspect })
}

fn drain(state: &State, report: &PlanReport, node: &Node, now: ClusterTime) -> Option<NodeDrainStatus> {
    match node.drain {
        Drain::No => return None,
        Drain::Drained { .. } if node.is_ready() => return None,
        // Its state says only that it cannot be reached.
        Drain::Drained { .. } => {
            return Some(NodeDrainStatus {
                ignore_system: node.drain_rules.ignore_system,
                drained: true,
                ..NodeDrainStatus::default()
            });
        }
        Drain::Draining { .. } => {}
    }
    let waits = node.replica_keys().filter_map(|key| wait(state, report, &key));
    // Those that cannot move first: nothing but a change of the cluster helps them.
    let (mut waiting, others): (Vec<DrainWait>, Vec<DrainWait>) = waits.partition(|wait| wait.cannot_move);
    waiting.extend(others);
    waiting.truncate(DRAIN_WAITS_MAX);
    let left = |at: ClusterTime| at.since(now).as_millis().div_ceil(1_000);
    Some(NodeDrainStatus {
        ends_in_secs: node.drain_rules.ends_at.map(left),
        ignore_system: node.drain_rules.ignore_system,
        drained: false,
        waiting,
    })
}

fn wait(state: &State, report: &PlanReport, key: &ReplicaKey) -> Option<DrainWait> {
    let replica = state.replicas.get(key)?;
    if replica.wanted != Wanted::Run || !replica.reserves() {
        return None;
    }
    let name = state.replica_name(key)?;
    let why = report.services.get(&key.service)?.why(&name.role, key.slot)?;
    let trouble = if let Why::ReplacementUnproven { node } = why {
        trouble_in_its_place(state, key, *node)
    } else {
        None
    };
    Some(DrainWait {
        replica: name.to_string(),
        why: trouble.map_or_else(|| why.to_string(), |trouble| format!("{why}: {trouble}")),
        cannot_move: why.is_stuck(),
    })
}

/// What is wrong with the replica that is to take the place of another.
fn trouble_in_its_place(state: &State, key: &ReplicaKey, node: NodeId) -> Option<String> {
    let mut others = state.replicas_of(key.service).filter(|(other, replica)| {
        let same = other.slot == key.slot && *other != key;
        same && replica.node == node && replica.wanted == Wanted::Run && !replica.is_healthy()
    });
    others.next()?.1.machine.trouble()
}
