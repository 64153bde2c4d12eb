//! `dhow rollout`: what is being rolled out, where it waits, and what people do about it.

use dhow_core::command::RolloutAction;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A service of which a new version is rolled out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutStatus {
    pub deployment: String,
    pub service: String,
    /// The revision that is rolled out.
    pub revision: u64,
    pub stage: RolloutStage,
    pub replicas: u32,
    /// Replicas of the new version that are healthy.
    pub updated: u32,
    /// Replicas of the version before that run.
    pub outdated: u32,
    /// Of how many requests how many go to the canary, while there is one: `1/41`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// The name of the gate at which it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    /// What it waits for, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What its canary was judged by, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<String>,
}

/// Which part of a rollout it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutStage {
    /// Some replicas of the new version run beside the one before.
    Canary,
    /// The version before is replaced.
    Spread,
    /// It has failed and waits for a person.
    Failed,
    /// The last good revision is put back.
    Reverting,
    /// What was put back fails as well.
    RevertFailed,
}

impl RolloutStage {
    pub fn word(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Spread => "spread",
            Self::Failed => "failed",
            Self::Reverting => "reverting",
            Self::RevertFailed => "revert_failed",
        }
    }
}

/// The body with which a person takes a hand in a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutRequest {
    pub action: RolloutVerb,
    /// All services that it concerns where none is named; `abort` is of the whole deployment.
    #[schema(pattern = "^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length = 63)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

/// What a person may do with a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutVerb {
    /// The canary is good: the other replicas follow.
    Promote,
    Pause,
    /// It goes on, or tries again where it has failed.
    Resume,
    /// Back to the last good revision.
    Abort,
}

impl From<RolloutVerb> for RolloutAction {
    fn from(verb: RolloutVerb) -> Self {
        match verb {
            RolloutVerb::Promote => Self::Promote,
            RolloutVerb::Pause => Self::Pause,
            RolloutVerb::Resume => Self::Resume,
            RolloutVerb::Abort => Self::Abort,
        }
    }
}
