//! `dhow history`: a deployment's revisions and what became of them.

use dhow_core::state::RevisionOutcome;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One revision of a deployment's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    pub revision: u64,
    pub state: RevisionState,
    pub author: String,
    pub created_unix_secs: i64,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    pub current: bool,
    /// The revision whose spec this one brings back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brings_back: Option<u64>,
    /// It was taken back because its version failed: the same again needs `--force`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub quarantined: bool,
    /// Its images in the order of the services, each once.
    pub images: Vec<String>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What became of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RevisionState {
    Deploying,
    Good,
    Superseded,
    /// It failed, and the last good one was put back.
    Reverted,
    Failed,
    /// Written by the losing half of a divided static cluster.
    Conflicted,
}

impl RevisionState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deploying => "deploying",
            Self::Good => "good",
            Self::Superseded => "superseded",
            Self::Reverted => "reverted",
            Self::Failed => "failed",
            Self::Conflicted => "conflicted",
        }
    }

    /// The state, and the cause where it is a bad one.
    pub fn of(outcome: &RevisionOutcome) -> (Self, Option<String>) {
        match outcome {
            RevisionOutcome::Rolling => (Self::Deploying, None),
            RevisionOutcome::Good => (Self::Good, None),
            RevisionOutcome::Superseded => (Self::Superseded, None),
            RevisionOutcome::Reverted { cause, .. } => (Self::Reverted, Some(cause.to_string())),
            RevisionOutcome::Failed { cause } => (Self::Failed, Some(cause.to_string())),
            RevisionOutcome::Conflicted => (Self::Conflicted, None),
        }
    }
}
