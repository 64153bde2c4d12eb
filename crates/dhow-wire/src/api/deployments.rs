//! Writes that change a deployment, and their answers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A write that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WriteDone {
    /// The revision of the whole state after it.
    pub state_revision: u64,
}

/// A deployment that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deployed {
    pub deployment: String,
    /// The deployment's own version, counted from 1.
    pub revision: u64,
    /// False where the cluster already had exactly this.
    pub changed: bool,
    pub state_revision: u64,
    /// The earlier revision that a rollback brings back; absent elsewhere, and from an older server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brings_back: Option<u64>,
}

/// The body with which counts of replicas are changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleRequest {
    /// All or none of them happen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub changes: Vec<ScaleItem>,
    /// The services are adaptive, and their scaler leaves the counts for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub hold_ms: Option<u64>,
    /// In place of changes: the adaptive services whose hold ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub release: Vec<String>,
}

/// The new count of one role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleItem {
    #[schema(pattern = "^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length = 63)]
    pub service: String,
    /// May be left out where the service has one role.
    #[schema(pattern = "^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length = 63)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    #[schema(maximum = 1000000)]
    pub replicas: u32,
}

/// The body with which replicas are restarted one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestartRequest {
    /// Every service where none is named.
    #[schema(pattern = "^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length = 63)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

/// The body with which services are stopped, or started again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// Every service where none is named.
    #[schema(pattern = "^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length = 63)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

/// The body with which an earlier revision is brought back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// The last good one before the current where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}
