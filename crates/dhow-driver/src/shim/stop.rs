//! Ending and removing replicas that run under shims.

use std::time::Duration;

use dhow_core::ids::ReplicaName;
use nix::sys::signal::Signal;

use super::record::StateRecord;
use super::replica_dirs::{Missing, ReplicaDirs};
use super::{identity, unchecked};
use crate::cgroup::Group;
use crate::driver::{Cause, Exit, ExitKind, ReplicaStatus, StopRequest, UnknownExit};

/// How long a killed replica is waited for. The shim clears up for at most 5 s, waits 1 s for output and 30 s
/// for a command that it runs after the end.
const KILL_TIMEOUT: Duration = Duration::from_secs(40);
/// How long a start that is under way is waited for before a stop gives up.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How often orphans are killed again: 500 × 10 ms.
const ORPHAN_ROUNDS_MAX: u32 = 500;
const ROUND_PAUSE: Duration = Duration::from_millis(10);

/// Who hears the first signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalTarget {
    /// The workload's whole process group, as a terminal would.
    Group,
    /// Its first process alone, which in a container passes it on.
    Main,
}

impl ReplicaDirs {
    /// Signals a replica, waits for the grace, then kills all of it.
    pub async fn stop(
        &self,
        name: &ReplicaName,
        how: StopRequest,
        target: SignalTarget,
        group: Option<&Group>,
    ) -> Result<Exit, Cause> {
        let pid = match self.settled(name).await? {
            ReplicaStatus::Ended(exit) => {
                self.kill_orphans(name, exit, group).await?;
                return Ok(exit);
            }
            ReplicaStatus::Running(running) => running.pid,
            ReplicaStatus::Starting => return Err(Cause::Busy),
        };
        self.signal(name, how.signal.signal(), target)?;
        let exit = match tokio::time::timeout(how.grace, self.wait(name)).await {
            Ok(exit) => exit?,
            Err(_) => self.kill(name, pid, group).await?,
        };
        self.kill_orphans(name, exit, group).await?;
        // The exit is recorded a moment before the shim is gone.
        self.shim_end(name).await?;
        Ok(exit)
    }

    /// Removes the replica's folder and group, and whatever still runs of it.
    pub async fn remove(&self, name: &ReplicaName, group: Option<&Group>) -> Result<(), Cause> {
        self.remove_with(name, group, || Ok(())).await
    }

    /// The same, with something to be cleared when nothing runs any more and before the folder goes.
    pub async fn remove_with(
        &self,
        name: &ReplicaName,
        group: Option<&Group>,
        clear: impl FnOnce() -> Result<(), Cause> + Send + 'static,
    ) -> Result<(), Cause> {
        let exit = match self.settled(name).await {
            Err(Cause::NoSuchReplica) => None,
            Err(error) => return Err(error),
            Ok(ReplicaStatus::Ended(exit)) => Some(exit),
            Ok(ReplicaStatus::Running(running)) => Some(self.kill(name, running.pid, group).await?),
            Ok(ReplicaStatus::Starting) => return Err(Cause::Busy),
        };
        if let Some(exit) = exit {
            self.kill_orphans(name, exit, group).await?;
            self.shim_end(name).await?;
        }
        let (dirs, name, group) = (self.clone(), name.clone(), group.cloned());
        blocking(move || dirs.remove_files(&name, group.as_ref(), clear)).await
    }

    fn remove_files(
        &self,
        name: &ReplicaName,
        group: Option<&Group>,
        clear: impl FnOnce() -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        let _lock = self.lock_soon(name, Missing::Leave)?;
        if let Some(group) = group {
            group
                .kill_and_wait()
                .and_then(|()| group.remove())
                .map_err(Cause::Cgroup)?;
        }
        clear()?;
        let dir = self.dir(name);
        // Whoever looks at the status meanwhile may make the lock's file anew.
        const TRIES_MAX: u32 = 10;
        let mut tries = 0;
        loop {
            match std::fs::remove_dir_all(&dir) {
                Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty && tries < TRIES_MAX => {
                    tries += 1;
                }
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Cause::file("removing", dir)(error));
                }
                Ok(()) | Err(_) => return Ok(()),
            }
        }
    }

    /// The status, once no start is under way any more.
    async fn settled(&self, name: &ReplicaName) -> Result<ReplicaStatus, Cause> {
        let deadline = tokio::time::Instant::now() + START_TIMEOUT;
        loop {
            let status = self.status(name)?;
            if status != ReplicaStatus::Starting || tokio::time::Instant::now() >= deadline {
                return Ok(status);
            }
            tokio::time::sleep(ROUND_PAUSE).await;
        }
    }

    /// Sends a signal if the workload still runs.
    pub fn signal(&self, name: &ReplicaName, signal: Signal, target: SignalTarget) -> Result<(), Cause> {
        let Some(state) = self.state(name)? else {
            return Ok(());
        };
        let signalling = || Cause::file("signalling", format!("/proc/{}", state.workload.pid));
        let Some(workload) = state.workload.open().map_err(signalling())? else {
            return Ok(());
        };
        let sent = match target {
            // A workload that is just being started leads no group yet.
            SignalTarget::Group => unchecked::signal_group(&workload, state.workload.pid, signal)
                .or_else(|_| unchecked::signal_process(&workload, signal)),
            SignalTarget::Main => unchecked::signal_process(&workload, signal),
        };
        match sent {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(errno) => Err(signalling()(errno.into())),
        }
    }

    /// Kills everything and waits for the shim's record of it.
    async fn kill(&self, name: &ReplicaName, pid: u32, group: Option<&Group>) -> Result<Exit, Cause> {
        if let Some(group) = group {
            let group = group.clone();
            blocking(move || {
                group.kill();
                Ok(())
            })
            .await?;
        }
        self.signal(name, Signal::SIGKILL, SignalTarget::Group)?;
        self.signal(name, Signal::SIGKILL, SignalTarget::Main)?;
        let waited_ms = u64::try_from(KILL_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let waited = tokio::time::timeout(KILL_TIMEOUT, self.wait(name)).await;
        waited.map_err(|_| Cause::Unkillable { pid, waited_ms })?
    }

    /// A shim clears up behind its workload. Where it was killed, that is left to us.
    async fn kill_orphans(&self, name: &ReplicaName, exit: Exit, group: Option<&Group>) -> Result<(), Cause> {
        if exit.kind != ExitKind::Unknown(UnknownExit::SupervisorKilled) {
            return Ok(());
        }
        let Some(state) = self.state(name)? else {
            return Ok(());
        };
        let group = group.cloned();
        blocking(move || {
            if let Some(group) = &group {
                group.kill_and_wait().map_err(Cause::Cgroup)?;
            }
            kill_tree(&state)
        })
        .await
    }
}

/// Kills the workload, all below it, and all of its session. Blocks.
pub(super) fn kill_tree(state: &StateRecord) -> Result<(), Cause> {
    let workload = state.workload;
    let pid = workload.pid;
    for _ in 0..ORPHAN_ROUNDS_MAX {
        let session = identity::session_members(pid);
        // While the workload lives its number is its own, and so is what is below it. Afterwards a
        // session of that number can only be what it left: the number is not given out before that ends.
        let lives = workload.lives();
        if !lives && identity::Stat::read(pid).is_ok_and(|stat| !stat.is_zombie()) {
            return Ok(());
        }
        let below = match lives {
            true => identity::descendants(pid),
            false => Vec::new(),
        };
        if session.is_empty() && below.is_empty() && !lives {
            return Ok(());
        }
        // A process that was found by its number is looked at once more when a descriptor holds it, so that its number
        // cannot mean another.
        for member in session {
            identity::kill_if(member, || {
                identity::Stat::read(member).is_ok_and(|stat| stat.session == pid)
            });
        }
        for process in below {
            identity::kill_if(process, || identity::is_below(process, workload));
        }
        identity::kill_if(pid, || workload.lives());
        std::thread::sleep(ROUND_PAUSE);
    }
    let waited_ms = u64::from(ORPHAN_ROUNDS_MAX) * u64::try_from(ROUND_PAUSE.as_millis()).unwrap_or(0);
    Err(Cause::Unkillable { pid, waited_ms })
}

/// Runs file access on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Cause> + Send + 'static,
) -> Result<T, Cause> {
    tokio::task::spawn_blocking(work).await.map_err(Cause::Task)?
}
