//! `dhow cluster status --json`: the cluster as one of its nodes sees it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::ClusterMode;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterStatus {
    pub mode: ClusterModeName,
    pub cluster_id: String,
    /// The node that answers.
    pub node_id: u64,
    /// Null while there is no leader.
    pub leader_id: Option<u64>,
    pub term: u64,
    /// The last applied of the log.
    pub revision: u64,
    pub nodes: u32,
}

/// The modes by their names in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterModeName {
    SingleNode,
    Raft,
    Static,
    WorkerTier,
}

impl From<&ClusterMode> for ClusterModeName {
    fn from(mode: &ClusterMode) -> Self {
        match mode {
            ClusterMode::SingleNode {} => Self::SingleNode,
            ClusterMode::Raft { .. } => Self::Raft,
            ClusterMode::Static { .. } => Self::Static,
            ClusterMode::WorkerTier { .. } => Self::WorkerTier,
        }
    }
}
