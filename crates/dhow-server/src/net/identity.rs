//! Who is on the other end of a connection, as its certificate proves it.
//!
//! Made by whatever ends TLS, and for an agent by its own process; read by the API, the node gateway and the servers' own channel. A
//! number in a body is never an identity.

use std::net::SocketAddr;
use std::sync::Arc;

use dhow_core::ids::NodeId;
pub use dhow_wire::certificate::Identity;

/// Where a request came from. Each one that is served carries it; one without it is treated as from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Unix {
        uid: u32,
    },
    /// The agent of the same process, which is this node.
    OwnAgent(NodeId),
    Tcp(SocketAddr),
    /// Over TLS; with an identity where it showed a certificate of this cluster.
    Tls {
        addr: SocketAddr,
        identity: Option<Identity>,
    },
}

impl Peer {
    /// By what name the caller is known already, where its certificate says it.
    pub(crate) fn proved(&self) -> Option<Arc<str>> {
        match self {
            Self::Tls { identity, .. } => identity.map(|identity| identity.to_string().into()),
            Self::OwnAgent(node) => Some(Identity::Member(*node).to_string().into()),
            Self::Tcp(_) | Self::Unix { .. } => None,
        }
    }
}
