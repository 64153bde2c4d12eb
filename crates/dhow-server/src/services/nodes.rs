//! The nodes of the cluster.

use dhow_core::state::Node;
use dhow_wire::{NodeState, NodeStatus};

use crate::log::Leadership;

pub(super) fn status(node: &Node, leadership: Leadership) -> NodeStatus {
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
    }
}
