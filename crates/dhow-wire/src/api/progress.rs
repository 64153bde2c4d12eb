//! How a deployment comes along: the `progress` events of its stream, and the `result` that ends it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::stabilization::ServiceHealthSummary;
use crate::status::{DeploymentState, ServedEndpoint};

/// A `progress` event: how far a revision is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    pub deployment: String,
    pub revision: u64,
    pub state: DeploymentState,
    pub services: Vec<ServiceProgress>,
}

/// How far one service is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceProgress {
    pub name: String,
    pub running: u32,
    pub desired: u32,
    /// Whether every replica that runs is.
    pub healthy: bool,
    pub healthy_count: u32,
    /// Wanted and not begun, replicas without a node included.
    pub pending: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulling: Option<PullingProgress>,
    pub starting: u32,
    pub failed: u32,
    /// Of `running`, those of the revision that is being rolled out; a server that does not tell them apart leaves
    /// it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<u32>,
    /// A job's replicas that have done their work: they count among `running` and `healthy_count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u32>,
    /// Replicas of another revision that are still to be replaced.
    #[serde(default)]
    pub outdated: u32,
    /// What it waits for, or the last trouble of a replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How far the pulls of a service's images are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PullingProgress {
    pub replicas: u32,
    pub done_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
}

/// The last event of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProgressResult {
    pub outcome: ProgressOutcome,
    /// For people: why, with the last log lines of what failed.
    pub message: String,
    pub services: Vec<ServiceHealthSummary>,
    /// Where the endpoints are served at the moment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served: Vec<ServedEndpoint>,
}

/// How a progress stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgressOutcome {
    /// Stable, or a job that has completed.
    Ready,
    /// The revision failed or was reverted.
    Failed,
    TimedOut,
    /// A newer revision has taken its place.
    Superseded,
    /// The deployment is gone.
    Removed,
}
