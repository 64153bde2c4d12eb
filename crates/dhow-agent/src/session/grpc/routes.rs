//! Where servers are.

use dhow_core::ids::NodeId;

/// A server's door for nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Which server it is, where that is known.
    pub node: Option<NodeId>,
    /// `host:port`.
    pub address: String,
}

/// Knows the servers. Asked before each attempt; it must not block.
pub trait Routes: Send + Sync + 'static {
    /// The leader, where this node believes to know it.
    fn leader(&self) -> Option<Endpoint>;

    /// All servers, tried one after the other.
    fn all(&self) -> Vec<Endpoint>;
}

/// Servers from a configuration.
#[derive(Clone, Debug)]
pub struct FixedRoutes(pub Vec<Endpoint>);

impl Routes for FixedRoutes {
    fn leader(&self) -> Option<Endpoint> {
        None
    }

    fn all(&self) -> Vec<Endpoint> {
        self.0.clone()
    }
}
