//! How a new version replaces the old one.

use serde::{Deserialize, Serialize};

use super::units::TimeSpan;

/// What the planner does when a rollout fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    #[default]
    Revert,
    Pause,
}

/// Whether a rollout goes on by itself or waits for a person. A file that asks for the latter is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promote {
    #[default]
    Auto,
    Manual,
}

/// The rollout block. Surge and unavailable are open where the user left them out, because their defaults
/// depend on the service's storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<u32>,
    #[serde(default)]
    pub canary: u32,
    #[serde(default)]
    pub promote: Promote,
    #[serde(default = "RolloutSpec::default_min_healthy")]
    pub min_healthy: TimeSpan,
    #[serde(default = "RolloutSpec::default_healthy_deadline")]
    pub healthy_deadline: TimeSpan,
    #[serde(default = "RolloutSpec::default_progress_deadline")]
    pub progress_deadline: TimeSpan,
    #[serde(default)]
    pub on_failure: OnFailure,
}

impl RolloutSpec {
    fn default_min_healthy() -> TimeSpan {
        TimeSpan::from_secs(10)
    }
    fn default_healthy_deadline() -> TimeSpan {
        TimeSpan::from_secs(5 * 60)
    }
    fn default_progress_deadline() -> TimeSpan {
        TimeSpan::from_secs(10 * 60)
    }
}

impl Default for RolloutSpec {
    fn default() -> Self {
        Self {
            max_surge: None,
            max_unavailable: None,
            canary: 0,
            promote: Promote::default(),
            min_healthy: Self::default_min_healthy(),
            healthy_deadline: Self::default_healthy_deadline(),
            progress_deadline: Self::default_progress_deadline(),
            on_failure: OnFailure::default(),
        }
    }
}
