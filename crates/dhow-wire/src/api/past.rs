//! The past of the cluster, as the server that answers has kept it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::event::EventDocument;

/// How far back a server can tell what was, and what that costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastWindow {
    /// The first revision that can be asked for; none where nothing is kept yet.
    pub first_revision: Option<u64>,
    /// When that was, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_unix_ms: Option<i64>,
    /// The last one.
    pub last_revision: Option<u64>,
    /// What it takes on the disk.
    pub bytes: u64,
    /// Older chapters are forgotten before it takes more.
    pub bytes_max: u64,
    /// What is older is forgotten.
    pub window_secs: u64,
    /// Revisions in between that this server does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<PastGap>,
    /// Why nothing is written at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Revisions that a server does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastGap {
    pub from_revision: u64,
    pub to_revision: u64,
}

/// A revision of the state of the cluster, and when it came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastMoment {
    pub revision: u64,
    /// None where the log did not note the wall clock.
    pub unix_ms: Option<i64>,
}

/// What differs between two moments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastDifference {
    pub from: PastMoment,
    pub to: PastMoment,
    /// Services that are asked for in another way.
    pub specs: Vec<SpecDifference>,
    /// The rest, as the events that would lead from one to the other; not the ones that did.
    pub changes: Vec<EventDocument>,
    /// Changes that are not told, because there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What is asked for of one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpecDifference {
    pub deployment: String,
    pub service: String,
    /// One line each. Values that may be passwords are not shown.
    pub lines: Vec<String>,
}
