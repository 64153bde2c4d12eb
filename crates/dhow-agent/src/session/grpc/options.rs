//! What a session is made with.

use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::NodeId;
use dhow_core::state::NodeInfo;
use dhow_wire::grpc::KeepAlive;

use super::backoff::Backoff;
use super::connector::Connector;
use super::routes::{Endpoint, Routes};

/// Dials connections to the server that the session is with, on which the server then calls. It must not wait: it is called
/// by the task that reads the session.
pub trait DialBack: Send + Sync + 'static {
    fn dial(&self, server: &Endpoint, number: Vec<u8>);
}

/// What the daemon gives a session at its start: who the node is, where servers are, and how connections to them are
/// made.
#[derive(Clone)]
pub struct GrpcOptions {
    pub node: NodeId,
    /// What the node says of itself at each opening, until it says something else.
    pub info: NodeInfo,
    pub routes: Arc<dyn Routes>,
    pub connector: Arc<dyn Connector>,
    pub backoff: Backoff,
    /// None where the server's own pings will do.
    pub keep_alive: Option<KeepAlive>,
    /// The least time between two reports of changes; a second unless there is a reason.
    pub report_gap: Duration,
    /// Where the server is told that it may ask for connections, and who dials them.
    pub dial_back: Option<Arc<dyn DialBack>>,
    /// The cluster that the node belongs to, where it knows: a session with another one is not taken.
    pub cluster_id: Option<String>,
}

impl GrpcOptions {
    /// The usual ones.
    pub fn new(node: NodeId, info: NodeInfo, routes: Arc<dyn Routes>, connector: Arc<dyn Connector>) -> Self {
        Self {
            node,
            info,
            routes,
            connector,
            backoff: Backoff::default(),
            keep_alive: Some(KeepAlive::OFTEN),
            report_gap: Duration::from_secs(1),
            dial_back: None,
            cluster_id: None,
        }
    }

    pub(super) fn is_own_cluster(&self, found: &str) -> bool {
        self.cluster_id.as_deref().is_none_or(|own| own == found)
    }
}
