//! Waiting for processes without polling.

use std::io;
use std::os::fd::OwnedFd;

use super::unchecked;

/// Returns when the process behind the descriptor has ended.
pub async fn ended(pidfd: OwnedFd) -> io::Result<()> {
    unchecked::watch_readable(pidfd)?.readable().await.map(drop)
}
