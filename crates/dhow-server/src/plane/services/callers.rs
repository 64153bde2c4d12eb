//! Who may call the endpoints of a service, and where those who answer are.

use std::collections::BTreeMap;

use dhow_core::ids::NodeId;
use dhow_core::spec::{Endpoint, Expose};
use dhow_core::state::{Service, State, Wanted};

/// Nodes that a line names: enough to find one, on one screen.
const NODES_SHOWN_MAX: usize = 8;

/// A line for each endpoint.
pub(super) fn lines(state: &State, service: &Service) -> Vec<String> {
    let endpoints = service.spec().map(|spec| spec.endpoints.as_slice());
    let lines = endpoints.unwrap_or_default().iter().map(|endpoint| {
        format!(
            "endpoint {} ({} {}) is {}: {} may call it; {}",
            endpoint.name,
            endpoint.protocol.scheme(),
            endpoint.port,
            endpoint.expose.word(),
            callers(endpoint),
            answering(state, service, endpoint)
        )
    });
    lines.collect()
}

fn callers(endpoint: &Endpoint) -> String {
    if let Some(allow) = &endpoint.allow {
        let named: Vec<String> = allow.iter().map(ToString::to_string).collect();
        return format!("only replicas of {}", named.join(", "));
    }
    match endpoint.expose {
        Expose::Internal => "replicas of its deployment",
        Expose::Cluster => "replicas of every deployment",
        Expose::Public => "everybody who reaches a node",
    }
    .to_owned()
}

fn answering(state: &State, service: &Service, endpoint: &Endpoint) -> String {
    let mut nodes: BTreeMap<NodeId, u32> = BTreeMap::new();
    for (key, replica) in state.replicas_of(service.id) {
        let role = service.role(key.slot.role);
        let is_behind = endpoint.target_role.is_none() || role == endpoint.target_role.as_ref();
        let is_there = state.node(replica.node).is_some_and(|node| node.is_ready());
        if is_behind && is_there && replica.wanted == Wanted::Run && replica.is_healthy() {
            *nodes.entry(replica.node).or_default() += 1;
        }
    }
    if nodes.is_empty() {
        return "no replica is ready to answer".to_owned();
    }
    let shown = nodes
        .iter()
        .take(NODES_SHOWN_MAX)
        .map(|(node, count)| match count {
            1 => format!("node {node}"),
            count => format!("node {node} ({count})"),
        });
    let mut shown: Vec<String> = shown.collect();
    if nodes.len() > NODES_SHOWN_MAX {
        shown.push(format!("{} more nodes", nodes.len() - NODES_SHOWN_MAX));
    }
    format!("ready replicas are on {}", shown.join(", "))
}
