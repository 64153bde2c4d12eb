//! Why there is no listener.

use std::io;
use std::net::SocketAddr;

#[derive(Debug, thiserror::Error)]
pub enum PeerListenError {
    #[error(
        "servers meet at {addr} only with a cluster key, because others can reach that address: make one with \
         `dhow cluster keygen`, put the line into the file that `cluster_key_file` names on every server \
         (`<data_dir>/cluster/cluster.key` unless it says otherwise, mode 600), and start again"
    )]
    NeedsKey { addr: SocketAddr },
    #[error("the other servers cannot be listened to at {addr}; is another daemon there?")]
    Bind {
        addr: SocketAddr,
        #[source]
        cause: io::Error,
    },
    #[error("TLS between the servers cannot be set up")]
    Tls(#[source] rustls::Error),
}
