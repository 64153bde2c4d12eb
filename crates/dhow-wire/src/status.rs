//! The documents that listings print with `--json` and that the API answers: other tools rely on their keys.
//!
//! Written by the API, read by the command line. Keys may be added; none is renamed or dropped.

mod cluster;
mod deployment;
mod node;
mod replica;

pub use cluster::{ClusterMember, ClusterModeName, ClusterStatus};
pub use deployment::{DeploymentSource, DeploymentState, DeploymentStatus, ServedEndpoint, ServingNode};
pub use dhow_core::state::NodeRole;
pub use node::{
    DrainWait, NodeAmounts, NodeDrainStatus, NodeFailures, NodeState, NodeStatus, ResourceAmount,
};
pub use replica::{ReplicaStateName, ReplicaStatus, UnknownReplicaState};

#[cfg(test)]
mod tests;
