//! Options of the sockets.

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;

use super::limits::{
    KEEP_ALIVE_IDLE_SECS, KEEP_ALIVE_INTERVAL_SECS, KEEP_ALIVE_PROBES, UNACKNOWLEDGED_MAX_MS,
};

/// Short frames go out at once, and a peer that is gone without a word is noticed by the kernel.
pub(super) fn prepare(stream: &TcpStream) {
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
