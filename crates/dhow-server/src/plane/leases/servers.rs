//! The servers among the nodes: a few among thousands of workers, and looked for only when the state has changed.

use dhow_core::ids::{NodeId, Revision};
use dhow_core::state::{NodeRole, State};

/// The ids of the servers among the state's nodes, kept until the state changes.
#[derive(Debug, Default)]
pub(super) struct Servers {
    seen: Option<Revision>,
    nodes: Vec<NodeId>,
}

impl Servers {
    pub fn of(&mut self, state: &State) -> &[NodeId] {
        if self.seen != Some(state.revision) {
            let is_server = |role: NodeRole| match role {
                NodeRole::Server | NodeRole::Peer => true,
                NodeRole::Worker => false,
            };
            let servers = state.nodes.values().filter(|node| is_server(node.info.role));
            self.nodes = servers.map(|node| node.id).collect();
            self.seen = Some(state.revision);
        }
        &self.nodes
    }
}
