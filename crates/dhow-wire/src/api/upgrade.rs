//! `dhow cluster upgrade-check`: what each member of a cluster knows, and what keeps the cluster at an older level.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far an upgrade of the cluster is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeCheck {
    /// The feature level that the cluster has.
    pub cluster_level: u32,
    /// The newest one that the server that answers knows.
    pub newest_level: u32,
    pub servers: Vec<ServerLevel>,
    /// Nodes whose agents are of an older version, with what they do not know.
    pub nodes: Vec<OlderNode>,
    /// What keeps the cluster at its level, in words; empty where nothing does.
    pub blocked_by: Vec<String>,
}

/// What one server knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerLevel {
    pub node_id: u64,
    /// None of one that is older than this question, or that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// None of one that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
}

/// A node with an older agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OlderNode {
    pub node_id: u64,
    /// What is not given to it, in words.
    pub lacks: Vec<String>,
}

impl UpgradeCheck {
    /// Works out what blocks.
    pub fn of(
        (cluster_level, newest_level): (u32, u32),
        servers: Vec<ServerLevel>,
        nodes: Vec<OlderNode>,
    ) -> Self {
        let is_behind = cluster_level < newest_level;
        let blocks = |server: &ServerLevel| match server.level {
            None => Some(format!("server {} does not answer", server.node_id)),
            Some(level) if level < newest_level => Some(format!(
                "server {} knows level {level} and no newer one",
                server.node_id
            )),
            Some(_) => None,
        };
        Self {
            cluster_level,
            newest_level,
            blocked_by: servers.iter().filter(|_| is_behind).filter_map(blocks).collect(),
            servers,
            nodes,
        }
    }

    /// Whether every server and every node is of this version, and the cluster has its level.
    pub fn is_done(&self) -> bool {
        let knows = |server: &ServerLevel| server.level.is_some_and(|level| level >= self.newest_level);
        self.cluster_level >= self.newest_level && self.nodes.is_empty() && self.servers.iter().all(knows)
    }
}
