//! What is mounted in a container: the kernel's own file systems, files that name hosts, the spec's storage.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use dhow_core::spec::Storage;

use crate::driver::Cause;

use super::oci::Mount;
use super::root_view::RootView;

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

/// The spec's own.
pub(super) fn of_storage(
    storage: &[Storage],
    volumes: &BTreeMap<String, PathBuf>,
    root: &RootView,
) -> Result<Vec<Mount>, Cause> {
    let one = |storage: &Storage| match storage {
        Storage::Bind {
            source,
            target,
            read_only,
        } => {
            let source = Path::new(source);
            fs::metadata(source).map_err(Cause::file("finding what `storage` binds,", source))?;
            Ok(bind(source, target, *read_only))
        }
        Storage::Named { name, target } => {
            let source = volumes.get(name).ok_or_else(|| Cause::Unsupported {
                field: "storage",
                why: format!("this node has no volume `{name}`"),
            })?;
            prepare_volume(source, target, root).map_err(Cause::file("preparing the volume", source))?;
            Ok(bind(source, target, false))
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
    storage.iter().map(one).collect()
}

/// An empty volume belongs to whom the folder that it covers belongs to: a program that does not run as root
/// can then write to it.
fn prepare_volume(volume: &Path, target: &str, root: &RootView) -> io::Result<()> {
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
