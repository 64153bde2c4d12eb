//! The replica machine. An agent moves it by what happens on its node; the control plane moves its mirror by
//! what the agent reports, with the same [`step`]: both always agree. Pure; times are the callers' business,
//! but for the length of a back-off, which both sides compute alike.

mod backoff;
mod table;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use backoff::backoff_delay;
pub use table::{Illegal, step};

use crate::ids::SettingsId;
use crate::spec::{RestartPolicy, RestartSpec, ServiceSpec};

/// Where a replica is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// Placed on a node that has not begun with it.
    #[default]
    Pending,
    Pulling,
    Starting,
    Running,
    /// Ended or not started, waiting to be started again.
    Backoff,
    Stopping,
    /// Ended and not to be started again: done, or stopped as asked.
    Exited,
    /// Ended badly and not to be started again.
    Failed,
    /// On a node that cannot be reached.
    Lost,
}

impl ReplicaState {
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Pulling,
        Self::Starting,
        Self::Running,
        Self::Backoff,
        Self::Stopping,
        Self::Exited,
        Self::Failed,
        Self::Lost,
    ];

    /// The word that status documents use. A replica between two attempts has failed for now.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Pulling => "pulling",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Backoff | Self::Failed => "failed",
            Self::Stopping => "stopping",
            Self::Exited => "exited",
            Self::Lost => "lost",
        }
    }

    /// Whether it is over: nothing of it runs and nothing will.
    pub fn is_ended(self) -> bool {
        match self {
            Self::Exited | Self::Failed => true,
            Self::Pending
            | Self::Pulling
            | Self::Starting
            | Self::Running
            | Self::Backoff
            | Self::Stopping
            | Self::Lost => false,
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// Nobody saw it: the machine rebooted, or what watched it was killed too.
    Unknown,
}

impl Exit {
    pub fn is_success(self) -> bool {
        matches!(self, Self::Code(0))
    }

    /// As a shell tells it: 128 and the signal's number for a signal.
    pub fn code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(signal) => Some(signal.saturating_add(128)),
            Self::Unknown => None,
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with {code}"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Self::Unknown => f.write_str("ended unseen"),
        }
    }
}

/// What can happen to a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaEvent {
    /// Its image is being fetched.
    PullBegan,
    /// It is being started, for the first time or again.
    StartBegan,
    /// Its process runs.
    Started { pid: u32 },
    /// Its check passes (or it has none and has run for a second).
    BecameHealthy,
    /// Its check has failed as often as the spec allows.
    BecameUnhealthy { message: Arc<str> },
    /// It has run long enough for earlier failures to be forgotten.
    RanSteadily,
    /// Its process ended.
    Ended { exit: Exit, oom: bool },
    /// It could not be fetched or started.
    CouldNotStart { message: Arc<str> },
    /// It is to end.
    StopBegan,
    /// A restarted agent found its process running.
    Adopted { pid: u32 },
    /// Its node cannot be reached.
    NodeLost,
    /// It has passed settings that it was told to try.
    SettingsPassed { settings: SettingsId },
    /// It does not pass them for now; what counted before goes on to count.
    SettingsFailed { settings: SettingsId, message: Arc<str> },
}

/// The kinds of event, for the table of what is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    PullBegan,
    StartBegan,
    Started,
    BecameHealthy,
    BecameUnhealthy,
    RanSteadily,
    Ended,
    CouldNotStart,
    StopBegan,
    Adopted,
    NodeLost,
    SettingsPassed,
    SettingsFailed,
}

impl EventKind {
    pub const ALL: [Self; 13] = [
        Self::PullBegan,
        Self::StartBegan,
        Self::Started,
        Self::BecameHealthy,
        Self::BecameUnhealthy,
        Self::RanSteadily,
        Self::Ended,
        Self::CouldNotStart,
        Self::StopBegan,
        Self::Adopted,
        Self::NodeLost,
        Self::SettingsPassed,
        Self::SettingsFailed,
    ];
}

impl ReplicaEvent {
    pub fn kind(&self) -> EventKind {
        match self {
            Self::PullBegan => EventKind::PullBegan,
            Self::StartBegan => EventKind::StartBegan,
            Self::Started { .. } => EventKind::Started,
            Self::BecameHealthy => EventKind::BecameHealthy,
            Self::BecameUnhealthy { .. } => EventKind::BecameUnhealthy,
            Self::RanSteadily => EventKind::RanSteadily,
            Self::Ended { .. } => EventKind::Ended,
            Self::CouldNotStart { .. } => EventKind::CouldNotStart,
            Self::StopBegan => EventKind::StopBegan,
            Self::Adopted { .. } => EventKind::Adopted,
            Self::NodeLost => EventKind::NodeLost,
            Self::SettingsPassed { .. } => EventKind::SettingsPassed,
            Self::SettingsFailed { .. } => EventKind::SettingsFailed,
        }
    }
}

/// Everything about a replica that its events decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub state: ReplicaState,
    pub healthy: bool,
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u32,
    /// Failures in a row, forgotten after a steady run; the back-off grows with them.
    pub failures: u32,
    pub exit: Option<Exit>,
    pub oom: bool,
    /// The last trouble, in words for people.
    pub message: Option<Arc<str>>,
}

impl Machine {
    /// The last trouble in words for people: what it said itself, or how it ended. An end for want of memory is
    /// always told as that.
    pub fn trouble(&self) -> Option<String> {
        let ended = match (self.exit, self.oom) {
            (Some(exit), true) => Some(format!("it ran out of memory and {exit}")),
            (None, true) => Some("it ran out of memory".to_owned()),
            (Some(exit), false) => Some(format!("it {exit}")),
            (None, false) => None,
        };
        match (&self.message, ended) {
            (Some(message), Some(ended)) if self.oom => Some(format!("{ended}: {message}")),
            (Some(message), _) => Some(message.to_string()),
            (None, ended) => ended,
        }
    }
}

/// When an ended replica is started again, as far as the machine needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestartRule {
    pub restart: RestartSpec,
    /// Success is the end: jobs are not started again when they are done.
    pub completes: bool,
}

impl RestartRule {
    pub fn of(spec: &ServiceSpec) -> Self {
        Self {
            restart: spec.restart,
            completes: spec.runs_to_completion(),
        }
    }

    /// Whether a replica that ends well has done what it should; otherwise it is started again.
    pub fn lets_end(&self) -> bool {
        match self.restart.policy {
            RestartPolicy::Always => self.completes,
            RestartPolicy::OnFailure | RestartPolicy::Never => true,
        }
    }

    /// The state after an end with this exit, `failures` in a row counted with this one.
    fn after(&self, exit: Exit, failures: u32) -> ReplicaState {
        let again = match self.restart.policy {
            RestartPolicy::Always => !(self.completes && exit.is_success()),
            RestartPolicy::OnFailure => !exit.is_success(),
            RestartPolicy::Never => false,
        };
        let exhausted = self.restart.max_attempts.is_some_and(|max| failures > max);
        match (again && !exhausted, exit.is_success()) {
            (true, _) => ReplicaState::Backoff,
            (false, true) => ReplicaState::Exited,
            (false, false) => ReplicaState::Failed,
        }
    }
}
