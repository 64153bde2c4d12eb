//! Options of long connections: between servers, and between servers and workers.

use std::io;
use std::net::SocketAddr;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Idle connections are probed by the kernel, so that a peer that lost its power is noticed: after 5 s, then each 2 s,
/// 3 times. That costs neither process anything, however many connections there are.
const KEEP_ALIVE_IDLE_SECS: u32 = 5;
const KEEP_ALIVE_INTERVAL_SECS: u32 = 2;
const KEEP_ALIVE_PROBES: u32 = 3;

/// How long sent bytes may go unacknowledged: as long as the probes take in all.
const UNACKNOWLEDGED_MAX_MS: u32 = 11_000;

/// Connections that wait to be taken: a crowd of thousands that joins at once finds room, where the kernel allows it.
const WAITING_MAX: u32 = 4_096;

/// Listens with a queue for crowds.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A server that was just stopped leaves connections behind that are closing.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(WAITING_MAX)
}

/// Short frames go out at once, and a peer that is gone without a word is noticed by the kernel.
pub fn prepare(stream: &TcpStream) {
    let set = || {
        setsockopt(stream, sockopt::TcpNoDelay, &true)?;
        setsockopt(stream, sockopt::KeepAlive, &true)?;
        setsockopt(stream, sockopt::TcpKeepIdle, &KEEP_ALIVE_IDLE_SECS)?;
        setsockopt(stream, sockopt::TcpKeepInterval, &KEEP_ALIVE_INTERVAL_SECS)?;
        setsockopt(stream, sockopt::TcpKeepCount, &KEEP_ALIVE_PROBES)?;
        setsockopt(stream, sockopt::TcpUserTimeout, &UNACKNOWLEDGED_MAX_MS)
    };
    if let Err(error) = set() {
        // Everything works without them, only slower to notice what is gone.
        tracing::debug!(%error, "an option of a socket cannot be set");
    }
}

/// Acknowledges at once what has come. Nothing follows a handshake from this side, which sends no tickets, so that the
/// kernel would wait 40 ms for something to send with the acknowledgement; a caller whose own kernel holds its request
/// back until then would wait as long.
pub fn acknowledge(stream: &TcpStream) {
    if let Err(error) = stream.set_quickack(true) {
        tracing::debug!(%error, "what has come is acknowledged later");
    }
}
