//! Volumes of nodes: what there is, who uses it, and where it is to be.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is told of volumes, and which nodes were not heard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeListing {
    pub volumes: Vec<VolumeInfo>,
    /// Nodes whose volumes are not among them.
    #[serde(default)]
    pub silent: Vec<SilentNode>,
}

/// A volume of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeInfo {
    pub deployment: String,
    pub name: String,
    pub node_id: u64,
    /// What its files take of the disk.
    pub used_bytes: u64,
    /// It has more files than were counted: it is larger.
    #[serde(default)]
    pub is_larger: bool,
    /// How much may be in it; absent where nothing bounds it but the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Absent where it is older than this is noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_unix_secs: Option<i64>,
    /// Services of the present revision that mount it.
    pub services: Vec<String>,
    /// Replicas on this node that use it.
    pub replicas: Vec<String>,
    /// When a replica last began with it or ended; absent while one uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused_since_unix_secs: Option<i64>,
    /// Whether a present or kept revision of its deployment names it. What none does is pruned.
    pub is_named: bool,
}

/// A node that was not heard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SilentNode {
    pub node_id: u64,
    pub why: String,
}

/// The body with which a volume gets a node before it is restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeHomeRequest {
    /// The node that is to keep it; the one that does already where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<u64>,
}

/// The node that keeps a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeHome {
    pub node_id: u64,
}

/// What was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeRemoved {
    pub node_id: u64,
    pub freed_bytes: u64,
}
