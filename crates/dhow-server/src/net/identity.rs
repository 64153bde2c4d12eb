//! Who is on the other end of a connection, as its certificate proves it.
//!
//! Made by whatever ends TLS, and by nothing else; read by the API, the node gateway and the servers' own channel. A
//! number in a body is never an identity.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use dhow_core::ids::NodeId;

/// Who the certificate of a connection proves the caller to be. The end of TLS puts it into each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A server of this cluster, or a peer of a static one.
    Member(NodeId),
    /// A worker that was given a certificate.
    Worker(NodeId),
}

/// By what name it is known, in the record of who did what too.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(node) => write!(f, "node {node}"),
            Self::Worker(node) => write!(f, "worker {node}"),
        }
    }
}

/// Where a request came from. Each one that is served carries it; one without it is treated as from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Unix {
        uid: u32,
    },
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
            Self::Tcp(_) | Self::Unix { .. } => None,
        }
    }
}
