//! Who may call the endpoints of a service, and where those who answer are.

use std::collections::BTreeMap;

use dhow_core::directory::{REVERSE, relays_through};
use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::spec::{Endpoint, Expose};
use dhow_core::state::{Service, State, Wanted};

/// Nodes that a line names: enough to find one, on one screen.
const NODES_SHOWN_MAX: usize = 8;

/// A line for each endpoint.
pub(super) fn lines(state: &State, service: &Service) -> Vec<String> {
    let endpoints = service.spec().map(|spec| spec.endpoints.as_slice());
    let lines = endpoints.unwrap_or_default().iter().map(|endpoint| {
        let ready = answering(state, service, endpoint);
        format!(
            "endpoint {} ({} {}) is {}: {} may call it; {}",
            endpoint.name,
            endpoint.protocol.scheme(),
            endpoint.port,
            endpoint.expose.word(),
            callers(endpoint),
            said(&ready)
        )
    });
    let mut lines: Vec<String> = lines.collect();
    let all = endpoints.unwrap_or_default().iter();
    let mut nodes = BTreeMap::new();
    for endpoint in all {
        nodes.extend(answering(state, service, endpoint));
    }
    lines.extend(ways(state, &nodes));
    lines
}

/// Which way calls go, where there is more than one node.
fn ways(state: &State, nodes: &BTreeMap<NodeId, u32>) -> Option<String> {
    if nodes.is_empty() || state.nodes.len() < 2 {
        return None;
    }
    let mut tunnels = Vec::new();
    let (mut relayed, mut unreached) = (Vec::new(), Vec::new());
    for node in nodes.keys().take(NODES_SHOWN_MAX) {
        let mesh = state.node(*node).and_then(|node| node.info.mesh_addr.as_deref());
        match mesh {
            Some(REVERSE) => {
                let relays = relays_through(state, *node);
                let relays: Vec<String> = relays.iter().map(ToString::to_string).collect();
                match relays.is_empty() {
                    true => unreached.push(format!("node {node} (no server can relay to it)")),
                    false => relayed.push(format!("node {node} through server {}", relays.join(" or "))),
                }
            }
            Some(mesh) => tunnels.push(format!("node {node} at {mesh}")),
            None => unreached.push(format!("node {node}")),
        }
    }
    let mut line = "calls from a node with a ready replica reach that one directly".to_owned();
    if !tunnels.is_empty() {
        line += &format!("; other nodes call through tunnels: {}", tunnels.join(", "));
    }
    if !relayed.is_empty() {
        let relayed = relayed.join(", ");
        line += &format!("; no other node can dial these, and calls are relayed: {relayed}");
    }
    if !unreached.is_empty() {
        let unreached = unreached.join(", ");
        line += &format!("; from other nodes {unreached} cannot be called: it has no `network.mesh_addr`");
    }
    Some(line)
}

/// Whether an endpoint of a service lets the replicas of another one in, or why not.
pub fn may_call(service: &Service, endpoint: &str, caller: &ServiceKey) -> Result<(), String> {
    let endpoints = service.spec().map(|spec| spec.endpoints.as_slice());
    let mut found = endpoints.unwrap_or_default().iter();
    let Some(endpoint) = found.find(|found| found.name == endpoint) else {
        return Ok(());
    };
    let own = &service.key.deployment;
    let may = match (&endpoint.allow, endpoint.expose) {
        (Some(allow), _) => allow.iter().any(|allowed| allowed.key(own) == *caller),
        (None, Expose::Internal) => caller.deployment == *own,
        (None, Expose::Cluster | Expose::Public) => true,
    };
    match may {
        true => Ok(()),
        false => Err(format!(
            "endpoint {} of {} is {}: {} may call it, {caller} may not",
            endpoint.name,
            service.key,
            endpoint.expose.word(),
            callers(endpoint)
        )),
    }
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

/// Ready replicas by node.
fn answering(state: &State, service: &Service, endpoint: &Endpoint) -> BTreeMap<NodeId, u32> {
    let mut nodes: BTreeMap<NodeId, u32> = BTreeMap::new();
    for (key, replica) in state.replicas_of(service.id) {
        let role = service.role(key.slot.role);
        let is_behind = endpoint.target_role.is_none() || role == endpoint.target_role.as_ref();
        let is_there = state.node(replica.node).is_some_and(|node| node.is_ready());
        if is_behind && is_there && replica.wanted == Wanted::Run && replica.is_healthy() {
            *nodes.entry(replica.node).or_default() += 1;
        }
    }
    nodes
}

fn said(nodes: &BTreeMap<NodeId, u32>) -> String {
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
