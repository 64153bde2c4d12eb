//! The bodies of `/health` and `/ready`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What `/health` and `/ready` answer where all is well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthDocument {
    /// `ok`.
    #[schema(value_type = String)]
    pub status: Cow<'static, str>,
    /// What a peer of a static cluster says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerHealthDocument>,
}

/// What the peers of a static cluster know each other by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerHealthDocument {
    pub node_id: u64,
    /// The epoch of the last entry of its log.
    #[serde(default)]
    pub epoch: u64,
    /// The position of that entry.
    #[serde(default)]
    pub revision: u64,
    /// The highest epoch that it has promised to.
    #[serde(default)]
    pub promised: u64,
    #[serde(default)]
    pub leads: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_id: Option<u64>,
    /// It is about to end.
    #[serde(default)]
    pub leaving: bool,
    /// Of the peers in its configuration: the same at each of them, as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers_hash: Option<u32>,
}

impl HealthDocument {
    pub fn ok() -> Self {
        Self {
            status: "ok".into(),
            peer: None,
        }
    }
}
