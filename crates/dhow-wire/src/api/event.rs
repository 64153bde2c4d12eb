//! A record of the event log as its stream carries it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One event as the API's stream sends it and `dhow events` prints it. Its kind is text, so that a client can read one
/// of a newer server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventDocument {
    /// The revision of the entry it came from; of the last one before it, where it came from none.
    pub revision: u64,
    /// Counts the events of one revision. The stream's `id` is `{revision}.{part}`.
    #[serde(default)]
    pub part: u32,
    /// Cluster time.
    pub time_ms: u64,
    /// When the server applied it, as its wall clock said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_unix_ms: Option<i64>,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The replica's id inside its deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<u64>,
    /// The rollout that it is a part of, `deployment@revision`: of replicas that it starts or replaces, and of its own end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Who asked for it, after the kind of what was shown: `uid 0`, `token ci (1f2e…)`. Absent for what the cluster does
    /// by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
}
