//! What a gateway is made with.

use std::collections::BTreeSet;
use std::sync::Arc;

use dhow_core::ids::NodeId;
use tokio_util::sync::CancellationToken;

use super::leader_door::LeaderDoor;
use super::reach::ReachWorker;
use super::tickets::TicketIssuer;
use super::workers::WorkerTier;
use crate::clock::Clock;
use crate::net::tunnels::Tunnels;
use crate::plane::leases::Leases;
use crate::plane::runtime::{InputSender, RuntimeView};
use crate::plane::secrets::SecretBox;

/// Where a server takes sessions, for those who came to the wrong one.
pub type SessionAddress = dyn Fn(NodeId) -> Option<String> + Send + Sync;

/// Which ids are servers'.
pub type ServerIds = dyn Fn() -> BTreeSet<NodeId> + Send + Sync;

/// What the daemon opens a gateway with.
#[derive(Clone)]
pub struct GatewayOptions {
    pub view: RuntimeView,
    pub input: InputSender,
    pub clock: Arc<dyn Clock>,
    pub leases: Leases,
    pub secrets: Arc<SecretBox>,
    pub session_address: Arc<SessionAddress>,
    /// The servers that are configured or taken in, whether they have come yet or not: no worker is given their ids.
    pub server_ids: Arc<ServerIds>,
    /// The servers that the cluster has now: they alone hold sessions of its nodes.
    pub members: Arc<ServerIds>,
    /// What it takes to take workers; none where the cluster has no worker tier.
    pub workers: Option<WorkerTier>,
    /// Whether sessions carry assignments. In a static cluster they do not: each node reads its own off its copy of the state.
    pub carries_assignments: bool,
    /// What signs the tickets of nodes; none where nodes have none.
    pub tickets: Option<TicketIssuer>,
    /// The way to another server that leads, where this one holds sessions for it; without one only a leader takes them.
    pub leader_door: Option<Arc<dyn LeaderDoor>>,
    /// Connections that workers dial back.
    pub tunnels: Tunnels,
    /// How a worker is tried that asks whether it can be dialled; none where there are no workers.
    pub reach: Option<Arc<ReachWorker>>,
    /// Nodes are sent to the server that they belong to once it has been fresh for so long.
    pub move_after_ms: u64,
    /// Open sessions are told and end with this.
    pub end: CancellationToken,
}
