//! `dhow explain`: why something is where it is, or why it is not running.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::status::ReplicaStateName;

/// The answer to an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// `deployment/service` or `deployment/replica-id`.
    pub subject: String,
    /// Everything below as sentences, in the order to print them.
    pub lines: Vec<String>,
    pub replicas: Vec<ExplainedReplica>,
    /// What is wanted and not there.
    pub waiting: Vec<ExplainedWait>,
}

/// A replica that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedReplica {
    pub id: String,
    pub generation: u32,
    pub state: ReplicaStateName,
    pub healthy: bool,
    pub restarts: u32,
    pub node_id: u64,
    /// The rules by which its node is chosen, and how the node stands with them now.
    pub placed_because: String,
    /// The last trouble.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Slots that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedWait {
    /// The id of the first of them.
    pub first: String,
    pub slots: u32,
    pub why: String,
}
