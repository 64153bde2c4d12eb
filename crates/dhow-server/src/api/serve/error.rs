//! Why the API cannot listen.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    #[error("the API listens on loopback alone, {addr} is none; set `api_addr: 127.0.0.1:{}`", addr.port())]
    NotLoopback { addr: SocketAddr },
}
