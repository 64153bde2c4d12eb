//! `dhow ps --json`: a replica that is present.

use std::fmt;
use std::str::FromStr;

use dhow_core::replica::ReplicaState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A replica that is there, is wanted, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaStatus {
    pub deployment: String,
    pub service: String,
    pub role: String,
    pub replica: u32,
    /// `{service}-{role}-{index}`.
    pub id: String,
    /// Null while no node has been found for it.
    pub node_id: Option<u64>,
    /// Null for a process, which has none.
    pub image: Option<String>,
    pub state: ReplicaStateName,
    pub healthy: bool,
    pub restarts: u32,
    /// The workload's own on its host.
    pub pid: Option<u32>,
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// The deployment's revision that it runs; left out where that is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_unix_secs: Option<i64>,
    /// As its node last measured it: thousandths of a core, and bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_used_milli: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// Asked for with `live`: what its node says of it at this moment, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<String>,
    /// Why it is in this state, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The states by the names that other tools rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaStateName {
    Pending,
    Pulling,
    Starting,
    Running,
    Stopping,
    Exited,
    Failed,
    Lost,
}

impl ReplicaStateName {
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Pulling,
        Self::Starting,
        Self::Running,
        Self::Stopping,
        Self::Exited,
        Self::Failed,
        Self::Lost,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Pulling => "pulling",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Exited => "exited",
            Self::Failed => "failed",
            Self::Lost => "lost",
        }
    }
}

impl From<ReplicaState> for ReplicaStateName {
    fn from(state: ReplicaState) -> Self {
        match state {
            ReplicaState::Pending => Self::Pending,
            ReplicaState::Pulling => Self::Pulling,
            ReplicaState::Starting => Self::Starting,
            ReplicaState::Running => Self::Running,
            ReplicaState::Stopping => Self::Stopping,
            ReplicaState::Exited => Self::Exited,
            // Between two attempts it has failed for now.
            ReplicaState::Backoff | ReplicaState::Failed => Self::Failed,
            ReplicaState::Lost => Self::Lost,
        }
    }
}

impl fmt::Display for ReplicaStateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A peer named a state that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no state of a replica that this version knows; the peer may be newer")]
pub struct UnknownReplicaState;

impl FromStr for ReplicaStateName {
    type Err = UnknownReplicaState;

    fn from_str(text: &str) -> Result<Self, UnknownReplicaState> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.as_str() == text)
            .ok_or(UnknownReplicaState)
    }
}
