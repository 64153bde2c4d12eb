//! The servers and peers that a configuration names.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A member of the raft group: where its peers reach it, and where its API is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RaftPeer {
    pub id: u64,
    pub raft_addr: SocketAddr,
    pub api_addr: SocketAddr,
}

/// A member of a static cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticPeer {
    pub id: u64,
    pub api_addr: SocketAddr,
    #[serde(default = "StaticPeer::default_os")]
    pub os: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl StaticPeer {
    pub fn default_os() -> String {
        "linux".into()
    }
}
