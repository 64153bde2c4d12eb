//! `dhow status --json`: a deployment with its services.

use dhow_core::state::Phase;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::stabilization::ServiceHealthSummary;

/// A deployment with its services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeploymentStatus {
    pub deployment: String,
    /// The deployment's own versions, counted from 1.
    pub revision: u64,
    pub state: DeploymentState,
    pub services: Vec<ServiceHealthSummary>,
    /// Why it is in this state, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What somebody should look at, though it runs: a certificate that cannot be shown or ends soon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Where its endpoints are served at the moment: an address of `services` is one of that node's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served: Vec<ServedEndpoint>,
    /// The source that it comes from; absent where people deployed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DeploymentSource>,
}

/// The source that has the last word about a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeploymentSource {
    pub name: String,
    /// The set in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The commit that it was read from, of a git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Until then people have the last word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_until_unix_secs: Option<i64>,
    /// When the leader looked at it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_unix_secs: Option<i64>,
    /// Why the last look at it brought nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An endpoint and the nodes that answer at it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServedEndpoint {
    pub service: String,
    /// As `endpoints` of the service has it.
    pub address: String,
    /// Whether it answers beyond its node.
    pub public: bool,
    /// Some of the nodes that have a replica behind it, by id.
    pub nodes: Vec<ServingNode>,
    /// Calls a second over all nodes, in the last seconds: requests of HTTP, connections, sessions of UDP. Absent where
    /// nobody has called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<f64>,
    /// Those of them that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors_per_second: Option<f64>,
}

/// A node that serves an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServingNode {
    pub node_id: u64,
    /// The node's address, where it has one beyond its own machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// How a deployment is doing.
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
    /// The last good revision was put back and fails as well.
    RevertFailed,
    /// People have stopped all of its services.
    Stopped,
}

impl DeploymentState {
    /// The word that the documents use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Deploying => "deploying",
            Self::Stable => "stable",
            Self::Degraded => "degraded",
            Self::Reverting => "reverting",
            Self::Reverted => "reverted",
            Self::Failed => "failed",
            Self::Removing => "removing",
            Self::RevertFailed => "revert_failed",
            Self::Stopped => "stopped",
        }
    }
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
            Phase::RevertFailed => Self::RevertFailed,
        }
    }
}
