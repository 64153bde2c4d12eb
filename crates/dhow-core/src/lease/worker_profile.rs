//! What a worker says about itself when it registers.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a worker offers and how it is reached, as it says when it joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerProfile {
    pub api_addr: SocketAddr,
    /// `linux`, `windows` or `darwin`; a worker that says another name is not taken.
    pub os: String,
    /// `x86_64` or `aarch64`.
    pub arch: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whole cores; 0 where a peer does not say.
    #[serde(default)]
    pub cpu_total: u32,
    #[serde(default)]
    pub memory_total_bytes: u64,
}
