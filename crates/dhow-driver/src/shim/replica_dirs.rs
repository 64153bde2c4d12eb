//! The folders of replicas as the daemon sees them: who runs, who has ended and how. Used by every driver
//! that runs replicas under shims. It keeps nothing in memory: a daemon that was killed and one that was
//! started anew see the same.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dhow_core::ids::{DeploymentName, Generation, ReplicaName, RoleName, ServiceName};
use dhow_disk::Dir;

use super::identity;
use super::record::{
    EXIT_FILE, ExitRecord, ExitStatus, LOCK_FILE, LOG_DIR, SPEC_FILE, STATE_FILE, StateRecord, clear_record,
    read_record, write_record,
};
use super::running::ended;
use super::stop::kill_tree;
use crate::driver::{Cause, Exit, ExitKind, ReplicaStatus, Running, StartRecord, UnknownExit};
use crate::logs::LogDir;

/// How often a start that another daemon began is looked at: it takes milliseconds.
const START_LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// All replicas of one driver.
#[derive(Clone, Debug)]
pub struct ReplicaDirs {
    run_dir: PathBuf,
}

/// A replica's folder, held for a start: nobody else starts or removes it meanwhile.
#[derive(Debug)]
pub struct StartLock {
    pub dir: PathBuf,
    /// The folder itself, whatever its path leads to later.
    pub folder: Dir,
    pub lock: File,
    /// There was no folder before: nothing in it is worth keeping if the start fails.
    pub fresh: bool,
}

impl ReplicaDirs {
    /// Makes the run folder, readable for its owner alone: logs and environments are nobody else's.
    pub fn open(run_dir: &Path) -> Result<Self, Cause> {
        let run_dir = std::path::absolute(run_dir).map_err(Cause::file("finding", run_dir))?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&run_dir);
        made.map_err(Cause::file("making", &run_dir))?;
        Ok(Self { run_dir })
    }

    pub fn dir(&self, name: &ReplicaName) -> PathBuf {
        self.run_dir.join(dir_name(name))
    }

    pub fn log_dir(&self, name: &ReplicaName) -> LogDir {
        LogDir::new(self.dir(name).join(LOG_DIR))
    }

    /// Every replica that has a folder.
    pub fn names(&self) -> Result<Vec<ReplicaName>, Cause> {
        let entries = fs::read_dir(&self.run_dir).map_err(Cause::file("listing", &self.run_dir))?;
        let names = entries
            .flatten()
            .filter_map(|entry| parse_dir_name(entry.file_name().to_str()?));
        let mut names: Vec<ReplicaName> = names.collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Every replica with what it is doing.
    pub fn list(&self) -> Result<Vec<(ReplicaName, ReplicaStatus)>, Cause> {
        let mut found = Vec::new();
        for name in self.names()? {
            match self.status(&name) {
                Ok(status) => found.push((name, status)),
                // Removed since the listing.
                Err(Cause::NoSuchReplica) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    pub fn exists(&self, name: &ReplicaName) -> bool {
        self.dir(name).exists()
    }

    /// Makes or takes over the folder for a start. What an earlier run left is cleared, except its logs.
    pub fn lock_for_start(&self, name: &ReplicaName) -> Result<StartLock, Cause> {
        let dir = self.dir(name);
        let fresh = !dir.exists();
        let lock = self.lock_soon(name, Missing::Make)?.ok_or(Cause::Busy)?;
        // A supervisor that was killed may have left its workload running: two of it must never be.
        if let Some(state) = self.state(name)?
            && identity::boot_id().is_ok_and(|boot_id| boot_id == state.boot_id)
        {
            kill_tree(&state)?;
        }
        for file in [EXIT_FILE, STATE_FILE, SPEC_FILE] {
            clear_record(&dir.join(file)).map_err(Cause::file("removing", dir.join(file)))?;
        }
        let folder = Dir::open(&dir).map_err(Cause::file("opening", &dir))?;
        if fresh {
            // What is durable in the folder is so only if the folder is.
            let run_dir = Dir::open(&self.run_dir).and_then(|run_dir| run_dir.sync());
            run_dir.map_err(Cause::file("syncing", &self.run_dir))?;
        }
        Ok(StartLock {
            dir,
            folder,
            lock,
            fresh,
        })
    }

    /// Takes the lock, waiting for those who have it for a moment only: a shim that is just ending, a look at the
    /// status, a caller that clears up behind an ended replica. `None` where there is no folder. Blocks.
    pub(super) fn lock_soon(&self, name: &ReplicaName, missing: Missing) -> Result<Option<File>, Cause> {
        // 50 × 5 ms while another caller starts it; 4,000 × 5 ms for clearing up, which is slow on a loaded host.
        const TRIES_MAX: u32 = 50;
        const TRIES_ENDED_MAX: u32 = 4_000;
        const PAUSE: Duration = Duration::from_millis(5);
        let mut tries = 0;
        while tries < TRIES_ENDED_MAX {
            if let Some(lock) = self.lock(name, missing)? {
                return Ok(Some(lock));
            }
            match self.status(name) {
                Ok(ReplicaStatus::Running(running)) => return Err(Cause::AlreadyRuns { pid: running.pid }),
                Err(Cause::NoSuchReplica) if missing == Missing::Leave => return Ok(None),
                Ok(ReplicaStatus::Ended(_)) => tries += 1,
                Ok(ReplicaStatus::Starting) | Err(Cause::NoSuchReplica) => {
                    tries += TRIES_ENDED_MAX / TRIES_MAX;
                }
                Err(error) => return Err(error),
            }
            std::thread::sleep(PAUSE);
        }
        Err(Cause::Busy)
    }

    /// Takes the lock of a replica that has ended, once its shim has let go of it: the end is told before that. `None`
    /// where somebody starts it, or there is no folder. Blocks.
    pub(crate) fn lock_ended(&self, name: &ReplicaName) -> Result<Option<File>, Cause> {
        match self.lock_soon(name, Missing::Leave) {
            Err(Cause::AlreadyRuns { .. } | Cause::Busy) => Ok(None),
            taken => taken,
        }
    }

    /// Takes a replica's lock if nobody has it and there is a folder.
    pub(crate) fn lock_if_free(&self, name: &ReplicaName) -> Result<Option<File>, Cause> {
        self.lock(name, Missing::Leave)
    }

    /// Takes a replica's lock; `None` when its shim or another call has it, or there is no folder.
    pub(super) fn lock(&self, name: &ReplicaName, missing: Missing) -> Result<Option<File>, Cause> {
        let dir = self.dir(name);
        let path = dir.join(LOCK_FILE);
        // A removal may take the file away between opening and locking: then once more.
        loop {
            if missing == Missing::Make {
                // Not what is above it: a data directory that somebody took away is not made anew in parts.
                match DirBuilder::new().mode(0o700).create(&dir) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(Cause::file("making", &dir)(error));
                    }
                    Ok(()) | Err(_) => {}
                }
            }
            let file = match OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&path)
            {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::Leave => {
                    return Ok(None);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Cause::file("opening", path)(error)),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(Cause::file("locking", path)(error)),
            }
            let locked = file.metadata().map_err(Cause::file("reading", &path))?;
            if fs::metadata(&path).is_ok_and(|found| found.ino() == locked.ino()) {
                return Ok(Some(file));
            }
        }
    }

    pub fn write_spec(&self, lock: &StartLock, record: &StartRecord) -> Result<(), Cause> {
        let path = lock.dir.join(SPEC_FILE);
        write_record(&path, record).map_err(Cause::file("writing", path))
    }

    /// What was started; `None` where that was never written.
    pub fn spec(&self, name: &ReplicaName) -> Result<Option<StartRecord>, Cause> {
        let path = self.dir(name).join(SPEC_FILE);
        read_record(&path).map_err(Cause::file("reading", path))
    }

    pub fn state(&self, name: &ReplicaName) -> Result<Option<StateRecord>, Cause> {
        let path = self.dir(name).join(STATE_FILE);
        read_record(&path).map_err(Cause::file("reading", path))
    }

    fn exit(&self, name: &ReplicaName) -> Result<Option<Exit>, Cause> {
        let path = self.dir(name).join(EXIT_FILE);
        let record: Option<ExitRecord> = read_record(&path).map_err(Cause::file("reading", path))?;
        Ok(record.map(|record| Exit {
            kind: match record.status {
                ExitStatus::Code(code) => ExitKind::Code(code),
                ExitStatus::Signal(signal) => ExitKind::Signal(signal),
            },
            oom: record.oom,
            ended_unix_ms: Some(record.ended_unix_ms),
        }))
    }

    /// What a replica is doing now.
    pub fn status(&self, name: &ReplicaName) -> Result<ReplicaStatus, Cause> {
        if let Some(exit) = self.exit(name)? {
            return Ok(ReplicaStatus::Ended(exit));
        }
        let unknown = |why| Ok(ReplicaStatus::Ended(Exit::unknown(why)));
        let Some(state) = self.state(name)? else {
            if !self.exists(name) {
                return Err(Cause::NoSuchReplica);
            }
            return match self.lock(name, Missing::Leave)? {
                // Whoever had the lock until now may just have written the state.
                Some(_free) if self.state(name)?.is_none() => unknown(UnknownExit::StartInterrupted),
                Some(_) | None => Ok(ReplicaStatus::Starting),
            };
        };
        let boot_id =
            identity::boot_id().map_err(Cause::file("reading", "/proc/sys/kernel/random/boot_id"))?;
        if state.boot_id != boot_id {
            return unknown(UnknownExit::HostRestarted);
        }
        if state.shim.lives() {
            let (pid, started_unix_ms) = (state.workload.pid, state.started_unix_ms);
            return Ok(ReplicaStatus::Running(Running {
                pid,
                started_unix_ms,
                notices: Vec::new(),
            }));
        }
        // It may have recorded the exit after the first look and ended.
        match self.exit(name)? {
            Some(exit) => Ok(ReplicaStatus::Ended(exit)),
            None => unknown(UnknownExit::SupervisorKilled),
        }
    }

    /// Waits for a replica's end.
    pub async fn wait(&self, name: &ReplicaName) -> Result<Exit, Cause> {
        loop {
            match self.status(name)? {
                ReplicaStatus::Ended(exit) => return Ok(exit),
                ReplicaStatus::Starting => tokio::time::sleep(START_LOOK_INTERVAL).await,
                ReplicaStatus::Running(_) => self.shim_end(name).await?,
            }
        }
    }

    /// Waits until the replica's shim is gone, whether it recorded an exit or not.
    pub(super) async fn shim_end(&self, name: &ReplicaName) -> Result<(), Cause> {
        let Some(state) = self.state(name)? else {
            return Ok(());
        };
        let watching = || Cause::file("watching", format!("/proc/{}", state.shim.pid));
        match state.shim.open().map_err(watching())? {
            Some(pidfd) => ended(pidfd).await.map_err(watching()),
            None => Ok(()),
        }
    }
}

/// What locking does where there is no folder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Leave,
}

/// `deployment.service.role.index.gGENERATION`: no part has a dot, so no two replicas share a folder.
pub fn dir_name(name: &ReplicaName) -> String {
    let ReplicaName {
        deployment,
        service,
        role,
        index,
        generation,
    } = name;
    format!("{deployment}.{service}.{role}.{index}.g{generation}")
}

pub(crate) fn parse_dir_name(text: &str) -> Option<ReplicaName> {
    let mut parts = text.split('.');
    let name = ReplicaName {
        deployment: DeploymentName::new(parts.next()?).ok()?,
        service: ServiceName::new(parts.next()?).ok()?,
        role: RoleName::new(parts.next()?).ok()?,
        index: parts.next()?.parse().ok()?,
        generation: Generation(parts.next()?.strip_prefix('g')?.parse().ok()?),
    };
    (parts.next().is_none() && dir_name(&name) == text).then_some(name)
}

#[cfg(test)]
mod tests;
