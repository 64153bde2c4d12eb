//! Why the API cannot listen.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a listener of the API could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("another daemon answers at {}; stop it, or give this one another `data_dir`", path.display())]
    Served { path: PathBuf },
    #[error("{} is in the way of the API's socket and is none; move it away", path.display())]
    NoSocket { path: PathBuf },
    #[error("cannot {action} the API's socket at {}", path.display())]
    Socket {
        action: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("the API cannot listen at {addr}; is another daemon there?")]
    Tcp {
        addr: SocketAddr,
        #[source]
        cause: io::Error,
    },
    #[error(
        "others can reach {addr}, so that the API needs a cluster key there: make one with `dhow cluster keygen` and \
         put it where `cluster_key_file` says, or set `api_addr: 127.0.0.1:{}`", addr.port()
    )]
    NotLoopback { addr: SocketAddr },
}
