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
    /// The servers that this node was given, in any order.
    fn all(&self) -> Vec<Endpoint>;

    /// Whether the node goes to no others, also where servers tell it of some.
    fn is_closed(&self) -> bool;
}

/// Servers from a configuration, which may name only some of them.
#[derive(Clone, Debug)]
pub struct FixedRoutes(pub Vec<Endpoint>);

impl Routes for FixedRoutes {
    fn all(&self) -> Vec<Endpoint> {
        self.0.clone()
    }

    fn is_closed(&self) -> bool {
        false
    }
}
