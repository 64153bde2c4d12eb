//! One open store: its temporary directory and its leases, alive exactly as long as its lock is held. A
//! session whose lock is free belongs to a process that ended; whoever finds it removes it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::dirs::{Dirs, create_private};
use super::error::StoreError;
use super::files::{self, Failing, remove_tree};
use super::lease;
use super::lock_file::LockFile;
use crate::image::digest::Digest;

const LOCK_SUFFIX: &str = ".lock";

/// A process's own part of the store: its temporary files and leases.
#[derive(Debug)]
pub(super) struct Session {
    name: String,
    dir: PathBuf,
    tmp: PathBuf,
    leases: PathBuf,
    /// Released last, after the directory is gone.
    _lock: LockFile,
}

impl Session {
    pub fn start(dirs: &Dirs) -> Result<Self, StoreError> {
        let name = format!("{}-{:016x}", std::process::id(), rand::random::<u64>());
        let lock_path = lock_path(dirs, &name);
        // The lock comes first: a directory without a lock file is garbage to everybody.
        let lock = LockFile::acquire(&lock_path).failing("lock", &lock_path)?;
        let dir = dirs.sessions().join(&name);
        let (tmp, leases) = (dir.join("tmp"), dir.join("leases"));
        create_private(&tmp)?;
        create_private(&leases)?;
        Ok(Self {
            name,
            dir,
            tmp,
            leases,
            _lock: lock,
        })
    }

    pub fn tmp_dir(&self) -> &Path {
        &self.tmp
    }

    pub fn leases_dir(&self) -> &Path {
        &self.leases
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Best effort: the next open removes what stays.
        let _ = remove_tree(&self.dir);
    }
}

fn lock_path(dirs: &Dirs, name: &str) -> PathBuf {
    dirs.sessions().join(format!("{name}{LOCK_SUFFIX}"))
}

/// The names of all sessions, dead or alive, by their directories and lock files.
fn names(dirs: &Dirs) -> Result<BTreeSet<String>, StoreError> {
    let sessions = dirs.sessions();
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(&sessions).failing("list", &sessions)? {
        let name = entry.failing("list", &sessions)?.file_name();
        let Some(name) = name.to_str() else { continue };
        names.insert(name.strip_suffix(LOCK_SUFFIX).unwrap_or(name).to_owned());
    }
    Ok(names)
}

/// Takes over a dead session; none while it lives.
fn take_dead(dirs: &Dirs, name: &str) -> Result<Option<Dead>, StoreError> {
    let lock_path = lock_path(dirs, name);
    let dir = dirs.sessions().join(name);
    if let Some(lock) = LockFile::try_existing(&lock_path).failing("lock", &lock_path)? {
        return Ok(Some(Dead {
            dir,
            _lock: Some(lock),
        }));
    }
    // A session makes its lock file first and removes it last, so a directory alone is dead. The directory is
    // looked at before the file: a session that starts in between has its file by then.
    let directory_alone = dir.exists() && !lock_path.exists();
    Ok(directory_alone.then_some(Dead { dir, _lock: None }))
}

struct Dead {
    dir: PathBuf,
    _lock: Option<LockFile>,
}

/// Removes what ended processes left behind.
pub(super) fn clean_dead(dirs: &Dirs) -> Result<(), StoreError> {
    for name in names(dirs)? {
        if let Some(dead) = take_dead(dirs, &name)? {
            remove_tree(&dead.dir)?;
        }
    }
    Ok(())
}

/// Everything that the leases of live sessions name.
pub(super) fn leased(dirs: &Dirs, own: &Session) -> Result<BTreeSet<Digest>, StoreError> {
    let mut leased = BTreeSet::new();
    for name in names(dirs)? {
        if name != own.name
            && let Some(dead) = take_dead(dirs, &name)?
        {
            remove_tree(&dead.dir)?;
            continue;
        }
        let leases = dirs.sessions().join(&name).join("leases");
        let entries = match fs::read_dir(&leases) {
            Ok(entries) => entries,
            // The session ended, or has not come this far; either way it holds no lease yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(StoreError::io("list", &leases, error)),
        };
        for entry in entries {
            let path = entry.failing("list", &leases)?.path();
            let named: Option<BTreeSet<Digest>> = files::read_json(&path)?;
            leased.extend(named.unwrap_or_default());
        }
    }
    Ok(leased)
}

/// Leases are named by a counter of the process.
pub(super) fn lease_path(leases_dir: &Path, number: u64) -> PathBuf {
    leases_dir.join(format!("{number}{}", lease::SUFFIX))
}
