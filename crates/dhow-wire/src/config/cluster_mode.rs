//! How this node takes part in a cluster. The serialised form is fixed: it is in files and in backups.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dhow_core::lease::AdaptiveTtlConfig;
use serde::{Deserialize, Serialize};

use super::peer::{RaftPeer, StaticPeer};
use super::seconds;

/// What a member of a worker tier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerTierRole {
    Server,
    Worker,
}

/// The mode of a cluster with its settings. People's files are read with positions elsewhere; this derived form
/// is for what programs write, and just as strict. The mode without fields is a map too, so that an unknown
/// field is refused there as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ClusterMode {
    /// No peers, no consensus; this node, id 1, always leads.
    SingleNode {},
    /// Consensus over a fixed first list of peers.
    Raft { node_id: u64, peers: Vec<RaftPeer> },
    /// Peers from the configuration; the lowest healthy id leads; no log.
    Static {
        node_id: u64,
        peers: Vec<StaticPeer>,
        #[serde(default = "ClusterMode::default_heartbeat_interval", with = "seconds")]
        heartbeat_interval: Duration,
        #[serde(default = "ClusterMode::default_failure_threshold", with = "seconds")]
        failure_threshold: Duration,
    },
    /// A few raft servers, and workers that never enter consensus.
    WorkerTier {
        role: WorkerTierRole,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node_id: Option<u64>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        peers: Vec<RaftPeer>,
        #[serde(
            default = "ClusterMode::default_worker_grpc_addr",
            skip_serializing_if = "ClusterMode::is_default_worker_grpc_addr"
        )]
        worker_grpc_addr: SocketAddr,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        servers: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token_file: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity_dir: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worker_ca_dir: Option<String>,
        #[serde(default = "ClusterMode::default_heartbeat_min_ttl", with = "seconds")]
        heartbeat_min_ttl: Duration,
        #[serde(default = "ClusterMode::default_heartbeat_max_ttl", with = "seconds")]
        heartbeat_max_ttl: Duration,
        #[serde(default = "ClusterMode::default_heartbeat_grace", with = "seconds")]
        heartbeat_grace: Duration,
        #[serde(default = "ClusterMode::default_max_heartbeats_per_second")]
        max_heartbeats_per_second: u32,
        #[serde(default = "ClusterMode::default_failover_heartbeat_ttl", with = "seconds")]
        failover_heartbeat_ttl: Duration,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        labels: BTreeMap<String, String>,
    },
}

impl Default for ClusterMode {
    fn default() -> Self {
        Self::SingleNode {}
    }
}

impl ClusterMode {
    /// The name of the mode, as the configuration has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SingleNode {} => "single-node",
            Self::Raft { .. } => "raft",
            Self::Static { .. } => "static",
            Self::WorkerTier { .. } => "worker-tier",
        }
    }

    /// How workers' leases are timed; only a worker tier has such.
    pub fn adaptive_ttl_config(&self) -> Option<AdaptiveTtlConfig> {
        let secs = |span: &Duration| u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
        match self {
            Self::SingleNode {} | Self::Raft { .. } | Self::Static { .. } => None,
            Self::WorkerTier {
                heartbeat_min_ttl,
                heartbeat_max_ttl,
                heartbeat_grace,
                max_heartbeats_per_second,
                failover_heartbeat_ttl,
                ..
            } => Some(AdaptiveTtlConfig {
                min_ttl_secs: secs(heartbeat_min_ttl),
                max_ttl_secs: secs(heartbeat_max_ttl),
                grace_secs: secs(heartbeat_grace),
                max_heartbeats_per_second: *max_heartbeats_per_second,
                failover_ttl_secs: secs(failover_heartbeat_ttl),
            }),
        }
    }

    pub fn is_worker_tier_server(&self) -> bool {
        self.worker_tier_role() == Some(WorkerTierRole::Server)
    }

    pub fn is_worker_tier_worker(&self) -> bool {
        self.worker_tier_role() == Some(WorkerTierRole::Worker)
    }

    fn worker_tier_role(&self) -> Option<WorkerTierRole> {
        match self {
            Self::SingleNode {} | Self::Raft { .. } | Self::Static { .. } => None,
            Self::WorkerTier { role, .. } => Some(*role),
        }
    }

    /// Where this node's own API is, as its peers know it.
    pub fn own_api_addr(&self) -> Option<SocketAddr> {
        let of_raft =
            |own: u64, peers: &[RaftPeer]| peers.iter().find(|peer| peer.id == own).map(|peer| peer.api_addr);
        match self {
            Self::SingleNode {} => None,
            Self::Raft { node_id, peers } => of_raft(*node_id, peers),
            Self::Static { node_id, peers, .. } => peers
                .iter()
                .find(|peer| peer.id == *node_id)
                .map(|peer| peer.api_addr),
            Self::WorkerTier {
                role: WorkerTierRole::Worker,
                ..
            } => None,
            Self::WorkerTier {
                role: WorkerTierRole::Server,
                node_id,
                peers,
                ..
            } => of_raft((*node_id)?, peers),
        }
    }

    /// The labels that the mode itself gives this node.
    pub fn own_labels(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::SingleNode {} | Self::Raft { .. } => None,
            Self::Static { node_id, peers, .. } => peers
                .iter()
                .find(|peer| peer.id == *node_id)
                .map(|peer| &peer.labels),
            Self::WorkerTier { labels, .. } => Some(labels),
        }
    }

    pub(super) fn default_heartbeat_interval() -> Duration {
        Duration::from_secs(5)
    }
    pub(super) fn default_failure_threshold() -> Duration {
        Duration::from_secs(15)
    }
    pub(super) fn default_worker_grpc_addr() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 3670))
    }
    fn is_default_worker_grpc_addr(addr: &SocketAddr) -> bool {
        *addr == Self::default_worker_grpc_addr()
    }
    pub(super) fn default_heartbeat_min_ttl() -> Duration {
        Duration::from_secs(10)
    }
    pub(super) fn default_heartbeat_max_ttl() -> Duration {
        Duration::from_secs(600)
    }
    pub(super) fn default_heartbeat_grace() -> Duration {
        Duration::from_secs(10)
    }
    pub(super) fn default_max_heartbeats_per_second() -> u32 {
        50
    }
    pub(super) fn default_failover_heartbeat_ttl() -> Duration {
        Duration::from_secs(300)
    }
}
