//! `dhow cron`: schedules with their next moments and their runs, and a run that somebody asks for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A schedule, when it comes next, and its runs that are under way or kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CronStatus {
    pub deployment: String,
    pub service: String,
    pub schedule: String,
    /// By its IANA name.
    pub zone: String,
    /// `allow`, `forbid` or `replace`.
    pub concurrency: String,
    /// `skip` or `once`.
    pub missed: String,
    /// How many ended runs are kept with their logs.
    pub keep: u32,
    /// As many of its next moments as were asked for.
    pub next_unix_secs: Vec<i64>,
    /// The newest first.
    pub runs: Vec<RunStatus>,
}

/// One run of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunStatus {
    pub run: u32,
    pub state: RunState,
    /// None where somebody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_unix_secs: Option<i64>,
    /// None where nobody can say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_unix_secs: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_secs: Option<i64>,
    /// How many of its replicas have done their work.
    pub done: u32,
    pub desired: u32,
    /// The ids of its replicas that are there, the first hundred.
    pub replicas: Vec<String>,
}

/// How a run does, or came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Running,
    Done,
    Failed,
    /// It was not done by its deadline.
    Late,
    /// The next run took its place.
    Replaced,
    /// Its service was stopped.
    Stopped,
}

impl RunState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Late => "late",
            Self::Replaced => "replaced",
            Self::Stopped => "stopped",
        }
    }

    pub fn is_ended(self) -> bool {
        self != Self::Running
    }
}

/// Starts a run of a schedule now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunRequest {
    pub service: String,
}

/// A run that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunBegun {
    pub run: u32,
    pub state_revision: u64,
}
