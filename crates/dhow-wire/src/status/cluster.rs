//! `dhow cluster status --json`: the cluster as one of its nodes sees it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::PastWindow;
use crate::config::ClusterMode;

/// The cluster as one of its nodes sees it.
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
    /// The hash of the state at that revision, where it was asked for: servers at one revision have one hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_hash: Option<String>,
    /// The servers, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<ClusterMember>,
    /// What this mode cannot promise, and what is wrong at the moment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// How far back the node that answers can tell what was, and what that costs; left out where it keeps no past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<PastWindow>,
}

/// A server, as the node that answers knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterMember {
    pub node_id: u64,
    pub api_addr: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raft_addr: Option<String>,
    /// Whether it has a vote; one that is still catching up has none.
    pub voter: bool,
    /// Whether the node that answers has heard of it lately.
    pub reachable: bool,
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
