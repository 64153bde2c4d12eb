//! The Unix socket: its owner's alone, or also a group's, never two daemons on one, and a stale one is no obstacle.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use super::error::BindError;

/// Whose members may use the socket of root's daemon, which makes them as mighty as root.
const GROUP: &str = "dhow";

/// That group, where this host has it. Only root hands its socket to others.
pub fn socket_group() -> Option<u32> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let group = nix::unistd::Group::from_name(GROUP).ok().flatten()?;
    Some(group.gid.as_raw())
}

/// The socket's file, removed with this unless somebody else has put another there.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| found.ino() == self.inode) {
            // The next daemon replaces it anyway.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BindError {
    let path = path.to_owned();
    move |cause| BindError::Socket { action, path, cause }
}

/// Made beside its place with its mode and then renamed, so that nobody else can connect at any moment.
pub(super) async fn bind(path: &Path, group: Option<u32>) -> Result<(UnixListener, SocketFile), BindError> {
    check_place(path).await?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("clear", &beside)(error)),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&beside).map_err(failed("make", path))?;
    let mode = match group {
        Some(_) => 0o660,
        None => 0o600,
    };
    // The owner's alone until it is the right group's.
    let made = std::fs::set_permissions(&beside, Permissions::from_mode(0o600))
        .and_then(|()| std::os::unix::fs::chown(&beside, None, group))
        .and_then(|()| std::fs::set_permissions(&beside, Permissions::from_mode(mode)))
        .and_then(|()| std::fs::symlink_metadata(&beside))
        .and_then(|found| std::fs::rename(&beside, path).map(|()| found.ino()));
    let inode = made.map_err(failed("make", path))?;
    let path = path.to_owned();
    Ok((listener, SocketFile { path, inode }))
}

/// Whether a socket may be put there.
async fn check_place(path: &Path) -> Result<(), BindError> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(failed("look at", path))?,
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NoSocket {
            path: path.to_owned(),
        });
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(BindError::Served {
            path: path.to_owned(),
        }),
        Err(_) => Ok(()),
    }
}
