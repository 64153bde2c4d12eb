//! What a replica is doing, and how it ended.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::signal::StopSignal;

/// A replica that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The workload's own process on this host.
    pub pid: u32,
    /// Wall clock, for people.
    pub started_unix_ms: u64,
    /// What of the spec this host carries out differently, such as a limit that it cut. Only a start fills it.
    #[serde(default)]
    pub notices: Vec<String>,
}

/// Where a replica is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaStatus {
    /// A start is under way, perhaps one that a daemon before this one began.
    Starting,
    Running(Running),
    Ended(Exit),
}

/// How a replica ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub kind: ExitKind,
    /// The kernel killed in it for want of memory.
    pub oom: bool,
    /// Wall clock, for people; none where nobody saw it.
    pub ended_unix_ms: Option<u64>,
}

/// How a workload ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitKind {
    Code(i32),
    Signal(i32),
    Unknown(UnknownExit),
}

/// Why nobody can say how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownExit {
    /// Its supervisor was killed; the workload may run on unseen until it is removed.
    SupervisorKilled,
    /// The host was started anew.
    HostRestarted,
    /// The daemon ended before the start was done.
    StartInterrupted,
}

impl Exit {
    pub fn code(code: i32) -> Self {
        Self {
            kind: ExitKind::Code(code),
            oom: false,
            ended_unix_ms: None,
        }
    }

    pub fn signal(signal: i32) -> Self {
        Self {
            kind: ExitKind::Signal(signal),
            oom: false,
            ended_unix_ms: None,
        }
    }

    pub fn unknown(why: UnknownExit) -> Self {
        Self {
            kind: ExitKind::Unknown(why),
            oom: false,
            ended_unix_ms: None,
        }
    }

    pub fn is_success(&self) -> bool {
        self.kind == ExitKind::Code(0)
    }

    /// The code as a shell would show it: 128 and the signal's number for a signal.
    pub fn shell_code(&self) -> Option<i32> {
        match self.kind {
            ExitKind::Code(code) => Some(code),
            ExitKind::Signal(signal) => Some(128 + signal),
            ExitKind::Unknown(_) => None,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ExitKind::Code(code) => write!(f, "exit code {code}")?,
            ExitKind::Signal(signal) => match nix::sys::signal::Signal::try_from(signal) {
                Ok(signal) => write!(f, "ended by {signal}")?,
                Err(_) => write!(f, "ended by signal {signal}")?,
            },
            ExitKind::Unknown(UnknownExit::SupervisorKilled) => {
                f.write_str("exit unknown: its supervisor was killed")?;
            }
            ExitKind::Unknown(UnknownExit::HostRestarted) => {
                f.write_str("exit unknown: the host was restarted")?;
            }
            ExitKind::Unknown(UnknownExit::StartInterrupted) => {
                f.write_str("never ran: the daemon ended while it was being started")?;
            }
        }
        if self.oom {
            f.write_str(" (out of memory)")
        } else {
            Ok(())
        }
    }
}

/// How a replica is to be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopRequest {
    pub signal: StopSignal,
    /// After this, SIGKILL for all its processes.
    pub grace: Duration,
}

impl StopRequest {
    /// At once, without asking.
    pub fn kill() -> Self {
        Self {
            signal: StopSignal::KILL,
            grace: Duration::ZERO,
        }
    }
}
