//! Targets of notices: who is told of what goes wrong.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a target can be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    /// A rollout has failed for good.
    RolloutFailed,
    /// A rollout has failed, or was aborted, and is taken back.
    RolloutReverted,
    NodeLost,
    /// A run of a schedule has failed, or was not done by its deadline.
    RunFailed,
    /// A source was refused, or something else that people should look at.
    Alarm,
}

/// Names a target, or changes it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NotifySetRequest {
    /// Where notices are posted to: `https://…`, or `http://…` on the servers' own host.
    #[schema(max_length = 2048)]
    pub url: String,
    /// The key of the signatures, which the receiver knows as well.
    #[schema(min_length = 8, max_length = 256)]
    pub key: String,
    /// What it is told of; everything where it is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<NoticeKind>,
    /// Whether `http://` may go to other hosts as well, for everybody on the way to read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain_http: bool,
}

impl std::fmt::Debug for NotifySetRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NotifySetRequest")
    }
}

/// One target, and how it fares since the present leader leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotifyStatus {
    pub name: String,
    /// The beginning of its address.
    pub address: String,
    pub on: Vec<NoticeKind>,
    pub sent: u64,
    /// Attempts that did not succeed.
    pub failed_attempts: u64,
    /// Notices that nobody took and that are not tried any more.
    pub given_up: u64,
    pub last_sent_unix_secs: Option<i64>,
    /// The last event that it needs to hear no more of: everything up to there was sent, given up, or is not for it.
    pub told_up_to: String,
    /// Why the last attempt did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
