//! Why there is no listener.

use std::io;
use std::net::SocketAddr;

/// Why this server cannot listen for the others.
#[derive(Debug, thiserror::Error)]
pub enum PeerListenError {
    #[error("the other servers cannot be listened to at {addr}; is another daemon there?")]
    Bind {
        addr: SocketAddr,
        #[source]
        cause: io::Error,
    },
    #[error("TLS between the servers cannot be set up")]
    Tls(#[source] rustls::Error),
}
