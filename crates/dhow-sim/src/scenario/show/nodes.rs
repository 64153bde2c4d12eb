//! `nodes`: who is in the cluster and what is left of it.

use dhow_core::spec::{ByteSize, Cpu};
use dhow_core::state::{Node, State};
use dhow_wire::NodeState;

use crate::scenario::table::table;

pub(in crate::scenario) fn nodes(state: &State) -> Vec<String> {
    let rows: Vec<[String; 6]> = state
        .nodes
        .values()
        .map(|node| {
            let labels: Vec<String> = node
                .labels()
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            let (used, whole) = (node.used, node.info.capacity);
            [
                node.id.to_string(),
                status(node).into(),
                node.reserving.to_string(),
                format!("{}/{}", Cpu(used.cpu_milli), Cpu(whole.cpu_milli)),
                format!("{}/{}", ByteSize(used.memory_bytes), ByteSize(whole.memory_bytes)),
                labels.join(","),
            ]
        })
        .collect();
    let heads = ["NODE", "STATUS", "REPLICAS", "CPU", "MEMORY", "LABELS"];
    table(heads, &rows)
}

/// The word that status documents use.
fn status(node: &Node) -> &'static str {
    match NodeState::of(node.liveness, node.drain) {
        NodeState::Ready => "ready",
        NodeState::Draining => "draining",
        NodeState::Drained => "drained",
        NodeState::Unreachable => "unreachable",
    }
}
