//! Unix sockets in a folder whose path may be longer than the 108 bytes that a socket's address has: they
//! are named through a descriptor of the folder.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tokio::net::UnixStream;

/// Makes the folder, for this user alone.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// The folder, to name what is in it by.
pub fn open(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

pub async fn connect(dir: &Path, name: &str) -> io::Result<UnixStream> {
    let folder = open(dir)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())).await
}

/// Listens for this user alone. A socket that somebody has left is replaced.
pub fn listen(dir: &Path, name: &str) -> io::Result<UnixListener> {
    remove(dir, name)?;
    let folder = open(dir)?;
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))?;
    close_to_others(dir, name)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The folder is closed to others, so nobody could connect to the socket before this.
pub fn close_to_others(dir: &Path, name: &str) -> io::Result<()> {
    fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o600))
}

pub fn remove(dir: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(dir.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
