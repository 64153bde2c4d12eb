//! What holds of every placement when it is applied: it breaks no limit of a node or of a group of nodes, and no wish of a
//! service to be near another one or away from it. A rule that comes later moves nothing, so only what is new is looked at.

use std::collections::BTreeSet;

use dhow_core::command::Entry;
use dhow_core::ids::{NodeId, ReplicaKey, ServiceId};
use dhow_core::replica::ReplicaState;
use dhow_core::spec::{Neighbour, RType};
use dhow_core::state::{Replica, Service, State};
use dhow_core::step::step;

pub fn check(log: &[Entry]) {
    let mut state = State::default();
    for entry in log {
        let before = state.clone();
        let _ = step(&mut state, entry, &mut ());
        let new = state.replicas.iter().filter(|(key, replica)| {
            let old = before.replicas.get(*key);
            replica.reserves() && old.is_none_or(|old| old.node != replica.node)
        });
        for (key, replica) in new {
            check_one(&state, key, replica.node);
        }
    }
}

fn is_there(replica: &Replica) -> bool {
    replica.reserves() && replica.machine.state != ReplicaState::Lost
}

fn nodes_of(state: &State, service: ServiceId) -> Vec<NodeId> {
    let there = state
        .replicas_of(service)
        .filter(|(_, replica)| is_there(replica));
    there.map(|(_, replica)| replica.node).collect()
}

fn value(state: &State, node: NodeId, label: &str) -> Option<String> {
    state.node(node)?.labels().get(label).cloned()
}

fn check_one(state: &State, key: &ReplicaKey, node: NodeId) {
    let Some(service) = state.service(key.service) else {
        return;
    };
    let spec = service.info(key.generation).map(|info| info.spec.clone());
    let Some(spec) = spec.filter(|spec| spec.rtype != RType::System) else {
        return;
    };
    let own = nodes_of(state, service.id);
    if let Some(max) = spec.max_per_node {
        let here = own.iter().filter(|other| **other == node).count();
        assert!(here <= max as usize, "{} has {here} on node {node}", service.key);
    }
    for (label, max) in &spec.max_per {
        let group = value(state, node, label);
        assert!(
            group.is_some(),
            "{} is on node {node} without {label}",
            service.key
        );
        let same = own.iter().filter(|other| value(state, **other, label) == group);
        assert!(
            same.count() <= *max as usize,
            "{} in {label} {group:?}",
            service.key
        );
    }
    for rule in spec.affinity.near.iter().filter(|rule| !rule.prefer) {
        let beside = is_beside(state, service, rule, node);
        assert!(
            beside,
            "{} is on node {node}, not near {}",
            service.key, rule.service
        );
    }
    for rule in spec.affinity.away_from.iter().filter(|rule| !rule.prefer) {
        let beside = is_beside(state, service, rule, node);
        assert!(
            !beside,
            "{} is on node {node} beside {}",
            service.key, rule.service
        );
    }
    check_others(state, service, node);
}

/// Whether a service of the same deployment is on the node, or in its group.
fn is_beside(state: &State, service: &Service, rule: &Neighbour, node: NodeId) -> bool {
    let deployment = state.deployment(&service.key.deployment);
    let other = deployment.and_then(|known| known.services.get(&rule.service));
    let nodes: BTreeSet<NodeId> = other
        .map(|id| nodes_of(state, *id))
        .into_iter()
        .flatten()
        .collect();
    match &rule.by {
        None => nodes.contains(&node),
        Some(label) => {
            let group = value(state, node, label);
            let same =
                |other: &NodeId| *other == node || (group.is_some() && value(state, *other, label) == group);
            nodes.iter().any(same)
        }
    }
}

/// Nobody comes beside a service that keeps away from it.
fn check_others(state: &State, service: &Service, node: NodeId) {
    for other in service.shunned_by.iter().filter_map(|id| state.service(*id)) {
        let Some(spec) = other.spec() else { continue };
        let rules = spec.affinity.away_from.iter();
        let rules =
            rules.filter(|rule| rule.service == service.key.service && !rule.prefer && rule.by.is_none());
        for _ in rules {
            let nodes = nodes_of(state, other.id);
            assert!(
                !nodes.contains(&node),
                "{} came to node {node} beside {}",
                service.key,
                other.key
            );
        }
    }
}
