//! `dhow node ls --json`: a node of the cluster.

use std::collections::BTreeMap;

use dhow_core::amount::Amount;
use dhow_core::lease::WorkerLease;
use dhow_core::state::{Drain, Liveness, NodeRole};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    pub node_id: u64,
    /// `server` in raft and for the servers of a worker tier, `worker`, or `peer` in static mode and on a single
    /// node.
    #[schema(value_type = String)]
    pub role: NodeRole,
    pub status: NodeState,
    pub leader: bool,
    pub labels: BTreeMap<String, String>,
    pub replicas: u32,
    /// False for a server that only decides: nothing is ever placed there. Left out where it is true.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub runs_replicas: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_addr: Option<String>,
    /// Where the proxies of other nodes reach its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh_addr: Option<String>,
    /// While it drains, and where it is drained and cannot be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<NodeDrainStatus>,
    /// What it offers, what its replicas reserve, and what is used of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<NodeAmounts>,
    /// Its lease, as the leader keeps it; none for the leader itself, and where nobody is ever given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub lease: Option<WorkerLease>,
    /// Services whose replicas keep failing there, where one node is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<NodeFailures>,
}

/// What a node without the field is: servers of earlier versions do not tell it.
fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

/// What speaks against a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeFailures {
    /// `DEPLOYMENT/SERVICE`, the first 100.
    pub services: Vec<String>,
    /// So many that the node itself is to be looked at.
    pub suspect: bool,
}

/// How a drain comes along.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDrainStatus {
    /// In how many seconds what is left is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in_secs: Option<u64>,
    /// Replicas of `system` services stay.
    #[serde(default)]
    pub ignore_system: bool,
    /// It had been drained before it could not be reached any more, and will be when it is back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// What holds it up, the first 100.
    #[serde(default)]
    pub waiting: Vec<DrainWait>,
}

/// A replica that has not left its node yet, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainWait {
    /// `DEPLOYMENT/ID`.
    pub replica: String,
    pub why: String,
    /// No other node takes it as things are.
    pub cannot_move: bool,
}

/// What a node has, what is reserved of it, and what is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeAmounts {
    pub capacity: ResourceAmount,
    pub reserved: ResourceAmount,
    /// As the node last measured it; left out where it has not, or cannot be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<ResourceAmount>,
}

/// CPU in thousandths of a core, memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceAmount {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

impl From<Amount> for ResourceAmount {
    fn from(amount: Amount) -> Self {
        Self {
            cpu_milli: amount.cpu_milli,
            memory_bytes: amount.memory_bytes,
        }
    }
}

/// Whether a node is there and takes replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    Ready,
    Draining,
    Drained,
    Unreachable,
}

impl NodeState {
    /// A node that cannot be reached is that first: draining it makes no progress.
    pub fn of(liveness: Liveness, drain: Drain) -> Self {
        match liveness {
            Liveness::Unreachable { .. } => Self::Unreachable,
            Liveness::Ready => match drain {
                Drain::No => Self::Ready,
                Drain::Draining { .. } => Self::Draining,
                Drain::Drained { .. } => Self::Drained,
            },
        }
    }
}
