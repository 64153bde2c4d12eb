//! A connection to a workload's port, real or made up.

use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio_util::either::Either;

/// An open connection to a replica's port, for health checks: of this host's network, or in memory.
pub type Connection = Either<TcpStream, DuplexStream>;
