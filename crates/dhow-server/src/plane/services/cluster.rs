//! The cluster as this node sees it.

use dhow_core::ids::NodeId;
use dhow_core::state::State;
use dhow_wire::{ClusterModeName, ClusterStatus};

use crate::plane::log::Leadership;

/// What a server knows of itself without the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterIdentity {
    pub mode: ClusterModeName,
    pub node_id: NodeId,
}

pub(super) fn status(state: &State, identity: ClusterIdentity, leadership: Leadership) -> ClusterStatus {
    ClusterStatus {
        mode: identity.mode,
        cluster_id: state.cluster_id.as_deref().unwrap_or_default().to_owned(),
        node_id: identity.node_id.0,
        leader_id: leadership.leader,
        term: state.term.0,
        revision: state.revision.0,
        nodes: u32::try_from(state.nodes.len()).unwrap_or(u32::MAX),
        state_hash: None,
        members: Vec::new(),
        notices: Vec::new(),
        past: None,
    }
}
