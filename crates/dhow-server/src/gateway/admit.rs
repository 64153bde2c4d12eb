//! Who may have a session: nodes that the state knows, and members, which are registered by their first word.

use std::sync::Arc;

use dhow_core::command::{Command, NodeCommand, Refused};
use dhow_core::spec::check::check_worker;
use dhow_core::state::{Node, NodeInfo, NodeRole, State};
use dhow_wire::grpc::{Refusal, from_node_info, proto};

use super::limits::INFO_BYTES;
use super::node_gateway::GatewayState;
use crate::net::identity::Identity;
use crate::plane::runtime::WriteError;

impl GatewayState {
    /// Makes sure that the state, a confirmed one, knows the node as it is now. Its lease was renewed before: should this be cut off
    /// half-way, the node is given up in time and not kept for ever.
    pub(super) async fn admit(
        &self,
        identity: Identity,
        state: &State,
        told: Option<proto::NodeInfo>,
    ) -> Result<(), Refusal> {
        let told = told.map(from_node_info).transpose();
        let told = told.map_err(|error| Refusal::Malformed(error.to_string()))?;
        let node = match identity {
            Identity::Member(node) | Identity::Worker(node) => node,
        };
        let known = state.node(node).map(|node| Arc::clone(&node.info));
        let info = match (identity, known, told) {
            (Identity::Member(_), Some(known), Some(told)) => changed(&known, of_member(told)),
            (Identity::Member(_), None, Some(told)) => Some(of_member(told)),
            (Identity::Worker(_), Some(known), Some(told)) => {
                let changed = changed(&known, of_worker(&known, told));
                changed.map(|info| checked(&known, info)).transpose()?
            }
            (_, Some(_), None) => None,
            (Identity::Member(_), None, None) => {
                return Err(Refusal::Malformed(
                    "a new member says what it is in `info`".into(),
                ));
            }
            (Identity::Worker(_), None, _) => return Err(Refusal::UnknownNode),
        };
        let Some(info) = info else { return Ok(()) };
        let is_worker = matches!(identity, Identity::Worker(_));
        let now_ms = self.options.clock.monotonic_ms();
        if is_worker && !self.rates.allow_bytes(node, INFO_BYTES, now_ms) {
            return Err(Refusal::TooOften);
        }
        let register = NodeCommand::Register {
            node,
            info: Arc::new(info),
        };
        let written = self.options.input.write(Command::Node(register), None).await;
        written.map(drop).map_err(|error| self.refusal(error))
    }

    /// A node never changes its role: a certificate of a worker is no server's, and the other way round.
    pub(super) fn check_role(&self, identity: Identity) -> Result<(), Refusal> {
        let (node, may_be_worker) = match identity {
            Identity::Member(node) => (node, false),
            Identity::Worker(node) => (node, true),
        };
        let state = self.options.view.state();
        let is_worker = |node: &Node| node.info.role == NodeRole::Worker;
        match state
            .node(node)
            .is_none_or(|node| is_worker(node) == may_be_worker)
        {
            true => Ok(()),
            false => Err(Refusal::Identity(format!(
                "node {node} is {} of this cluster: two nodes have the same id, and one of them needs another",
                if may_be_worker { "a server" } else { "a worker" }
            ))),
        }
    }

    /// What the runtime says, as this protocol says it.
    pub(super) fn refusal(&self, error: WriteError) -> Refusal {
        match error {
            WriteError::Busy => Refusal::Busy,
            WriteError::ShuttingDown => Refusal::ShuttingDown,
            WriteError::NotLeader { .. } => self.not_leader(),
            WriteError::Refused(Refused::Missing(_)) => Refusal::UnknownNode,
            WriteError::Refused(refused) => Refusal::NotGiven(refused.to_string()),
            WriteError::Unwritable(cause) => Refusal::Malformed(cause.to_string()),
            // Sending it again does no harm: a report is known by its numbers.
            WriteError::NotTaken(_) | WriteError::StorageGone | WriteError::Unknown => Refusal::Busy,
        }
    }
}

/// A worker says what a machine can be, also later. Its labels are those that it joined with, which stay.
fn checked(known: &NodeInfo, told: NodeInfo) -> Result<NodeInfo, Refusal> {
    let mut told = NodeInfo {
        labels: Arc::default(),
        ..told
    };
    check_worker(&mut told).map_err(Refusal::Malformed)?;
    Ok(NodeInfo {
        labels: Arc::clone(&known.labels),
        ..told
    })
}

fn changed(known: &NodeInfo, told: NodeInfo) -> Option<NodeInfo> {
    (*known != told).then_some(told)
}

/// A member is no worker, whatever it says.
fn of_member(told: NodeInfo) -> NodeInfo {
    let role = match told.role {
        NodeRole::Worker | NodeRole::Server => NodeRole::Server,
        NodeRole::Peer => NodeRole::Peer,
    };
    NodeInfo { role, ..told }
}

/// A worker's labels were checked against its token when it registered: they stay.
fn of_worker(known: &NodeInfo, told: NodeInfo) -> NodeInfo {
    NodeInfo {
        role: known.role,
        labels: Arc::clone(&known.labels),
        runs_replicas: known.runs_replicas,
        ..told
    }
}
