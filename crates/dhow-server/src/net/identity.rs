//! Who is on the other end of a connection, as its certificate proves it.
//!
//! Made by whatever ends TLS, and by nothing else; read by the API, the node gateway and the servers' own channel. A
//! number in a body is never an identity.

use dhow_core::ids::NodeId;

/// Who the certificate of a connection proves the caller to be. The end of TLS puts it into each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A server of this cluster, or a peer of a static one.
    Member(NodeId),
    /// A worker that was given a certificate.
    Worker(NodeId),
}
