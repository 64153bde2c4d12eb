//! `dhow status --json`: a deployment with its services.

use dhow_core::state::Phase;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::stabilization::ServiceHealthSummary;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeploymentStatus {
    pub deployment: String,
    /// The deployment's own versions, counted from 1.
    pub revision: u64,
    pub state: DeploymentState,
    pub services: Vec<ServiceHealthSummary>,
    /// Why it is in this state, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentState {
    Deploying,
    Stable,
    Degraded,
    Reverting,
    Reverted,
    Failed,
    Removing,
}

impl From<Phase> for DeploymentState {
    /// The phase that the log knows; whether a stable deployment is degraded is read off its services.
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Deploying => Self::Deploying,
            Phase::Stable => Self::Stable,
            Phase::Reverting => Self::Reverting,
            Phase::Reverted => Self::Reverted,
            Phase::Failed => Self::Failed,
            Phase::Removing => Self::Removing,
        }
    }
}
