//! Makes the parent groups, and switches controllers of version 2 on for what is below them.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::host::Controller;
use super::mounts::Hierarchy;

/// Of a group's folder.
const MODE: u32 = 0o755;

/// Makes the parent at the top of the hierarchy, or below our own group where the top is not ours; the
/// reason where neither is allowed.
pub(super) fn make_parent(hierarchy: &Hierarchy, parent: &str) -> Result<PathBuf, String> {
    let top = hierarchy.mount.join(parent);
    let Err(error) = make(&top) else {
        return Ok(top);
    };
    if hierarchy.own.as_os_str().is_empty() {
        return Err(reason(&top, &error));
    }
    let own = hierarchy.mount.join(&hierarchy.own).join(parent);
    make(&own)
        .map(|()| own.clone())
        .map_err(|error| reason(&own, &error))
}

/// Whatever mask the daemon has: programs that are not root's read their limits in it.
pub(super) fn create(path: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))
}

fn make(path: &Path) -> io::Result<()> {
    match create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // A leftover of another user that this one may not fill is as good as none.
            nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).map_err(io::Error::from)
        }
        other => other,
    }
}

fn reason(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("no permission to make {}", path.display()),
        io::ErrorKind::ReadOnlyFilesystem => format!("{} is mounted read-only", path.display()),
        _ => format!("{} cannot be made ({error})", path.display()),
    }
}

/// Switches the wanted controllers on for the children of `parent`; gives those that are on afterwards.
/// Each is written by itself: one that is not there must not take the others along.
pub(super) fn switch_on(parent: &Path, wanted: impl Iterator<Item = Controller>) -> Vec<Controller> {
    let wanted: Vec<(Controller, &str)> = wanted.filter_map(|c| Some((c, c.v2_name()?))).collect();
    for folder in [parent.parent(), Some(parent)].into_iter().flatten() {
        for (_, name) in &wanted {
            // Refused where the kernel lacks it, or the group has processes of its own: seen below.
            let _ = fs::write(folder.join("cgroup.subtree_control"), format!("+{name}"));
        }
    }
    let on = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
    wanted
        .into_iter()
        .filter(|(_, name)| on.split_ascii_whitespace().any(|word| word == *name))
        .map(|(controller, _)| controller)
        .collect()
}
