//! What is mounted in a container: the kernel's own file systems, files that name hosts, the spec's storage.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use dhow_core::spec::Storage;
use rustix::fs::{Mode, OFlags, open};

use crate::driver::{Cause, ReplicaStart};
use crate::shim::protocol::Shown;
use crate::volume::{Covered, fill, limit_new};

use super::oci::Mount;
use super::root_view::RootView;

/// Holds the ephemeral volumes of a replica, in its folder.
const EPHEMERAL_DIR: &str = "volumes";
const EPHEMERAL_MODE: u32 = 0o755;

/// What every container has.
pub(super) fn usual(privileged: bool) -> Vec<Mount> {
    let access = if privileged { "rw" } else { "ro" };
    vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount(
            "/dev",
            "tmpfs",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        ),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
                "gid=5",
            ],
        ),
        mount(
            "/dev/shm",
            "tmpfs",
            "shm",
            &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"],
        ),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", access]),
        mount(
            "/sys/fs/cgroup",
            "cgroup",
            "cgroup",
            &["nosuid", "noexec", "nodev", "relatime", access],
        ),
    ]
}

fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> Mount {
    Mount {
        destination: destination.to_owned(),
        kind: kind.to_owned(),
        source: source.to_owned(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
    }
}

/// A file or folder of the host.
pub(super) fn bind(source: &Path, destination: &str, read_only: bool) -> Mount {
    let access = if read_only { "ro" } else { "rw" };
    mount(
        destination,
        "bind",
        &source.display().to_string(),
        &["rbind", "rprivate", access],
    )
}

/// A folder or a file of the host that may be bound, as it was when it was looked at.
#[derive(Debug)]
pub(super) struct Bound {
    pub shown: Shown,
    /// While it is held, nothing else gets its number.
    pub _held: OwnedFd,
}

/// The spec's own, and what the mounts of some of them have to show.
pub(super) fn of_storage(
    start: &ReplicaStart,
    root: &RootView,
    replica_dir: &Path,
    bound: &mut Vec<Bound>,
) -> Result<Vec<Mount>, Cause> {
    let (storage, volumes) = (&start.spec.storage, &start.volumes);
    let mut one = |storage: &Storage| match storage {
        Storage::Bind {
            source,
            target,
            read_only,
        } => {
            let source = Path::new(source);
            let Some(folders) = &start.bind_folders else {
                fs::metadata(source).map_err(Cause::file("finding what `storage` binds,", source))?;
                return Ok(bind(source, target, *read_only));
            };
            let (found, leads_to) = find_bound(source, target, folders)?;
            bound.push(found);
            Ok(bind(&leads_to, target, *read_only))
        }
        Storage::Named {
            name,
            target,
            read_only,
            nocopy,
            size: _,
        } => {
            let source = volumes.get(name).ok_or_else(|| Cause::Unsupported {
                field: "storage",
                why: format!("this node has no volume `{name}`"),
            })?;
            fill_volume(source, target, root, !nocopy)?;
            Ok(bind(source, target, *read_only))
        }
        Storage::Ephemeral { target, size } => {
            let source = ephemeral(replica_dir, target, size.map(|size| size.0))?;
            own_empty(&source, target, root).map_err(Cause::file("preparing", &source))?;
            Ok(bind(&source, target, false))
        }
        Storage::Tmpfs { target, size } => {
            let mut options = vec!["nosuid".to_owned(), "nodev".to_owned(), "mode=1777".to_owned()];
            options.extend(size.map(|size| format!("size={}", size.0)));
            Ok(Mount {
                options,
                ..mount(target, "tmpfs", "tmpfs", &[])
            })
        }
    };
    storage.iter().map(&mut one).collect()
}

/// Opens what a source leads to, once, and looks where that is: whoever changes a link later changes nothing, because
/// the mount has to show what was opened here.
fn find_bound(source: &Path, target: &str, folders: &[String]) -> Result<(Bound, PathBuf), Cause> {
    let failed = || Cause::file("finding what `storage` binds,", source);
    let held = open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| failed()(error.into()))?;
    let own = format!("/proc/self/fd/{}", held.as_raw_fd());
    let leads_to = fs::read_link(own).map_err(failed())?;
    let mut allowed = folders
        .iter()
        .filter_map(|folder| Path::new(folder).canonicalize().ok());
    if !allowed.any(|folder| leads_to.starts_with(folder)) {
        let source_path = source.to_owned();
        return Err(Cause::BindForbidden {
            source_path,
            leads_to,
        });
    }
    let file = fs::File::from(held);
    let found = file.metadata().map_err(failed())?;
    let shown = Shown {
        target: target.to_owned(),
        source: source.to_owned(),
        device: found.dev(),
        inode: found.ino(),
    };
    let bound = Bound {
        shown,
        _held: file.into(),
    };
    Ok((bound, leads_to))
}

/// Gives a new volume what the image has where it is mounted.
fn fill_volume(volume: &Path, target: &str, root: &RootView, copies: bool) -> Result<(), Cause> {
    // The image has no such folder, or a file there: nothing comes of it.
    let held = root.folder(target).ok();
    let path = held
        .as_ref()
        .map(|held| PathBuf::from(format!("/proc/self/fd/{}/.", held.as_raw_fd())));
    let covered = path.as_deref().map(|path| Covered { path, copies });
    fill(volume, covered).map_err(|error| Cause::Volume(Box::new(error)))
}

/// The folder of an ephemeral volume: beside the replica's records, and gone with them.
fn ephemeral(replica_dir: &Path, target: &str, size: Option<u64>) -> Result<PathBuf, Cause> {
    let volumes = replica_dir.join(EPHEMERAL_DIR);
    let folder = volumes.join(target.trim_matches('/').replace('/', "\u{2215}"));
    let failed = || Cause::file("making", &folder);
    for dir in [&volumes, &folder] {
        match fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made.map_err(failed())?,
        }
        fs::set_permissions(dir, fs::Permissions::from_mode(EPHEMERAL_MODE)).map_err(failed())?;
    }
    if let Some(bytes) = size {
        limit_new(&folder, bytes).map_err(|error| Cause::Volume(Box::new(error)))?;
    }
    Ok(folder)
}

/// An empty folder belongs to whom the folder that it covers belongs to: a program that does not run as root can then
/// write to it.
fn own_empty(volume: &Path, target: &str, root: &RootView) -> io::Result<()> {
    if fs::read_dir(volume)?.next().is_some() {
        return Ok(());
    }
    let Ok(covered) = root.metadata(target) else {
        return Ok(());
    };
    if covered.is_dir() {
        chown(volume, Some(covered.uid()), Some(covered.gid()))?;
        fs::set_permissions(volume, fs::Permissions::from_mode(covered.mode() & 0o7777))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_is_what_its_source_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().canonicalize().unwrap().join(name);
        for folder in ["allowed", "allowed/data", "secret"] {
            fs::create_dir(path(folder)).unwrap();
        }
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(path(to), path(name)).unwrap();
        link("secret", "allowed/out");
        link("allowed/data", "allowed/in");
        link("allowed", "also-allowed");
        let folders = [path("also-allowed").display().to_string()];
        let (bound, leads_to) = find_bound(&path("allowed/in"), "/t", &folders).unwrap();
        assert_eq!(leads_to, path("allowed/data"));
        let found = fs::metadata(path("allowed/data")).unwrap();
        assert_eq!(
            (bound.shown.device, bound.shown.inode),
            (found.dev(), found.ino())
        );
        for (bad, to) in [("allowed/out", "secret"), ("secret", "secret")] {
            let why = find_bound(&path(bad), "/t", &folders).unwrap_err();
            assert!(
                matches!(&why, Cause::BindForbidden { leads_to, .. } if *leads_to == path(to)),
                "{why}"
            );
        }
        find_bound(&path("allowed/none"), "/t", &folders).unwrap_err();
        find_bound(&path("allowed"), "/t", &[]).unwrap_err();
    }
}
