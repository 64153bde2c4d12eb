//! How a new version replaces the old one.

use serde::{Deserialize, Serialize};

use super::DeploymentSpec;
use super::percent::Percent;
use super::units::TimeSpan;

/// What the planner does when a rollout fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    #[default]
    Revert,
    Pause,
}

/// Whether a canary that was found good is followed by the others at once, or when a person says so.
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
    /// How long a canary is given to get the requests that it is judged by.
    #[serde(
        default = "RolloutSpec::default_observe",
        skip_serializing_if = "RolloutSpec::is_default_observe"
    )]
    pub observe: TimeSpan,
    /// The share of the replicas that may fail without the revision being given up.
    #[serde(default, skip_serializing_if = "Percent::is_none")]
    pub failure_ratio: Percent,
}

impl RolloutSpec {
    /// The first feature level at which every server knows canaries, failure ratios and what people say of a rollout.
    pub const STAGES_SINCE: u32 = 5;

    /// Whether it says what servers before [`RolloutSpec::STAGES_SINCE`] do not know.
    pub fn has_stages(&self) -> bool {
        self.canary > 0 || self.promote == Promote::Manual || self.failure_ratio != Percent::NONE
    }

    fn default_observe() -> TimeSpan {
        TimeSpan::from_secs(5 * 60)
    }
    // The reference is what serde hands over.
    fn is_default_observe(span: &TimeSpan) -> bool {
        *span == Self::default_observe()
    }
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

impl DeploymentSpec {
    /// Whether it has rules of rollouts that came with feature level 5.
    pub fn needs_stages(&self) -> bool {
        let mut services = self.services.values();
        services.any(|service| service.rollout.has_stages())
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
            observe: Self::default_observe(),
            failure_ratio: Percent::NONE,
        }
    }
}
