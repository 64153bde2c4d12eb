//! Nodes as placement sees them.

use crate::placement::{NodeRow, Occupant, Openness};
use crate::spec::NodeMode;
use crate::state::{Drain, Node, Taken};

/// The row of a node.
pub fn node_row(node: &Node) -> NodeRow {
    let open = match (node.is_ready(), node.drain) {
        (false, _) => Openness::Unreachable,
        (true, Drain::Draining { .. }) => Openness::Draining,
        (true, Drain::Drained { .. }) => Openness::Drained,
        (true, Drain::No) if !node.info.runs_replicas => Openness::NoReplicas,
        (true, Drain::No) => Openness::Open,
    };
    NodeRow {
        id: node.id,
        open,
        os: node.info.os.clone(),
        arch: node.info.arch.clone(),
        labels: node.labels(),
        capacity: node.info.capacity,
        used: node.used,
        replicas: node.reserving,
        occupant: occupant(node.taken),
        mounts_files: node.info.mounts_files,
        runs_steps: node.info.runs_steps,
        volumes: node.info.volumes,
    }
}

fn occupant(taken: Option<Taken>) -> Occupant {
    match taken {
        None => Occupant::Nobody,
        Some(Taken { service, mode }) => match mode {
            NodeMode::Shared => Occupant::Nobody,
            NodeMode::Dedicated => Occupant::Dedicated(service),
            NodeMode::Exclusive => Occupant::Exclusive(service),
        },
    }
}
