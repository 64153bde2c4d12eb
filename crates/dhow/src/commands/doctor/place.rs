//! Where the state is kept: the data directory, its disk, and the files with keys.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dhow_wire::{ClusterMode, DaemonConfig, WorkerTierRole};
use nix::sys::statvfs::statvfs;

use super::Found;
use crate::output::bytes;

/// The log, images and replicas' output need room; below this something soon stands still.
const FREE_MIN_BYTES: u64 = 1 << 30;

/// Where nothing can be written any more.
const FREE_NONE_BYTES: u64 = 64 << 20;

/// In which a file that is read with others' eyes lies open.
const OTHERS: u32 = 0o077;

pub(super) fn data_dir(config: &DaemonConfig) -> Vec<Found> {
    let dir = config.data_dir.as_path();
    let shown = dir.display();
    let own = nix::unistd::geteuid().as_raw();
    let first = match fs::metadata(dir) {
        Ok(found) if !found.is_dir() => Found::broken(
            "data directory",
            format!("{shown} is no directory"),
            "move it away, or set data_dir",
        ),
        Ok(found) if found.uid() != own => Found::broken(
            "data directory",
            format!("{shown} belongs to user {}, and this is user {own}", found.uid()),
            "run this as that user, or set data_dir (DHOW_DATA_DIR)",
        ),
        Ok(_) => Found::ok("data directory", format!("{shown}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => not_there(dir),
        Err(error) => Found::broken(
            "data directory",
            format!("{shown} cannot be looked at: {error}"),
            "see the modes of the folders above it",
        ),
    };
    let mut found = vec![first];
    found.extend(disk(dir));
    found
}

/// The first folder above that exists.
fn above(dir: &Path) -> Option<PathBuf> {
    let dir = std::path::absolute(dir).ok()?;
    dir.ancestors()
        .find(|folder| folder.exists())
        .map(Path::to_path_buf)
}

fn not_there(dir: &Path) -> Found {
    let shown = dir.display();
    let writable =
        above(dir).filter(|folder| nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).is_ok());
    match writable {
        Some(_) => Found::ok(
            "data directory",
            format!("{shown} is not there yet; the daemon makes it"),
        ),
        None => Found::broken(
            "data directory",
            format!("{shown} is not there and cannot be made by this user"),
            "run this as root, or set data_dir (DHOW_DATA_DIR)",
        ),
    }
}

fn disk(dir: &Path) -> Option<Found> {
    let folder = above(dir)?;
    let stats = statvfs(&folder).ok()?;
    let free = stats.blocks_available().saturating_mul(stats.fragment_size());
    let what = format!("{} free at {}", bytes(free), folder.display());
    let hint = "make room: `dhow image prune` removes images that nothing uses";
    Some(if free < FREE_NONE_BYTES {
        Found::broken("disk", what, hint)
    } else if free < FREE_MIN_BYTES {
        Found::lacks("disk", what, hint)
    } else {
        Found::ok("disk", what)
    })
}

pub(super) fn key_files(config: &DaemonConfig) -> Vec<Found> {
    match &config.cluster {
        ClusterMode::SingleNode {} => Vec::new(),
        ClusterMode::WorkerTier {
            role: WorkerTierRole::Worker,
            token_file,
            ..
        } => vec![worker_identity(config, token_file.as_deref())],
        ClusterMode::Raft { .. } | ClusterMode::Static { .. } | ClusterMode::WorkerTier { .. } => {
            vec![cluster_key(&config.cluster_key_file)]
        }
    }
}

fn cluster_key(file: &Path) -> Found {
    let shown = file.display();
    let make = "make it on one server and copy it to all: (umask 077; dhow cluster keygen > FILE)";
    match fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Found::broken("cluster key", format!("{shown} is not there"), make)
        }
        Err(error) => Found::broken(
            "cluster key",
            format!("{shown} cannot be looked at: {error}"),
            make,
        ),
        Ok(found) if found.mode() & OTHERS != 0 => Found::broken(
            "cluster key",
            format!("{shown} can be read by others"),
            format!("chmod 600 {shown}"),
        ),
        Ok(_) => match dhow_server::net::keys::ClusterKey::read_file(file) {
            Ok(_) => Found::ok("cluster key", format!("{shown}")),
            Err(error) => Found::broken("cluster key", error.to_string(), make),
        },
    }
}

fn worker_identity(config: &DaemonConfig, token_file: Option<&str>) -> Found {
    let dir = config.worker_identity_dir();
    if dir.join("cert.pem").exists() {
        return Found::ok("identity", format!("this worker has joined: {}", dir.display()));
    }
    let hint = "on a server: dhow token create-worker > FILE, and name it as token_file";
    match token_file.map(|file| (file, fs::metadata(file))) {
        Some((file, Ok(_))) => Found::ok("identity", format!("it joins with the token in {file}")),
        Some((file, Err(error))) => Found::broken("identity", format!("the token in {file}: {error}"), hint),
        None => Found::broken(
            "identity",
            "this worker has not joined, and has no token to join with",
            hint,
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::Weight;
    use super::*;

    #[test]
    fn a_key_that_others_read_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cluster.key");
        assert_eq!(cluster_key(&file).weight, Weight::Broken, "it is not there");
        fs::write(&file, "no key").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let open = cluster_key(&file);
        assert!(open.hint.unwrap().starts_with("chmod 600"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(cluster_key(&file).weight, Weight::Broken, "it is no key");
    }

    #[test]
    fn a_directory_that_can_be_made_is_no_fault() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(not_there(&dir.path().join("a/b")).weight, Weight::Ok);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(disk(&file.join("x")).is_some(), "the disk below is told");
    }
}
