//! The configuration that a daemon runs with: every value known, defaults filled in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use dhow_core::spec::{ByteSize, Cpu, Policy};
use serde::{Serialize, Serializer};

use super::acme::AcmeConfig;
use super::api_addr::ApiAddr;
use super::cluster_mode::ClusterMode;
use super::log::LogConfig;
use super::network::{MeshAddr, MeshSetting, NetworkConfig};
use super::past::PastConfig;
use super::registries::RegistryConfig;
use super::sources::SourceConfig;

/// What this node offers; what is left open is what the host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeResources {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
}

/// The effective configuration. Its serialised form is a configuration file that gives the same value again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DaemonConfig {
    /// All state; one daemon per directory.
    pub data_dir: PathBuf,
    /// The API's Unix socket.
    pub socket: PathBuf,
    pub api_addr: ApiAddr,
    pub cluster: ClusterMode,
    pub cluster_key_file: PathBuf,
    /// The node's labels, those of its mode included.
    pub labels: BTreeMap<String, String>,
    pub resources: NodeResources,
    pub log: LogConfig,
    /// What is forbidden on this node, and in files that its API takes.
    pub policy: Policy,
    /// How long a server renews certificates of workers that have expired; the default where it is not said.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_seconds")]
    pub renew_expired_for: Option<Duration>,
    /// Registries that are not to be spoken to as any other.
    #[serde(skip_serializing_if = "RegistryConfig::is_empty")]
    pub registries: RegistryConfig,
    #[serde(skip_serializing_if = "NetworkConfig::is_default")]
    pub network: NetworkConfig,
    /// How far back this server can tell what was.
    #[serde(skip_serializing_if = "PastConfig::is_default")]
    pub past: PastConfig,
    /// Where the cluster orders certificates; nowhere where it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acme: Option<AcmeConfig>,
    /// Directories of signed deployment files that the cluster follows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceConfig>,
}

fn optional_seconds<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    span.map(|span| span.as_secs()).serialize(to)
}

/// A week: a worker that was off over some days comes back by itself.
const RENEW_EXPIRED_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

impl DaemonConfig {
    /// For how many seconds after its end a worker's certificate can still be renewed here.
    pub fn renew_expired_secs(&self) -> i64 {
        let span = self.renew_expired_for.unwrap_or(RENEW_EXPIRED_FOR);
        i64::try_from(span.as_secs()).unwrap_or(i64::MAX)
    }

    /// Where the proxies of other nodes reach this one's: as configured, else where they reach its API. None for a single
    /// node, and where nobody can.
    pub fn mesh_addr(&self) -> Option<MeshAddr> {
        match &self.cluster {
            ClusterMode::SingleNode {} => None,
            ClusterMode::Raft { .. } | ClusterMode::Static { .. } | ClusterMode::WorkerTier { .. } => {
                let known = self.cluster.own_api_addr().or_else(|| self.api_addr.addr());
                MeshAddr::of(self.network.mesh_addr.and_then(MeshSetting::addr), known)
            }
        }
    }

    /// Where a worker keeps its certificate: as configured, else inside the data directory.
    pub fn worker_identity_dir(&self) -> PathBuf {
        match &self.cluster {
            ClusterMode::WorkerTier {
                identity_dir: Some(dir),
                ..
            } => dir.into(),
            ClusterMode::WorkerTier { .. }
            | ClusterMode::SingleNode {}
            | ClusterMode::Raft { .. }
            | ClusterMode::Static { .. } => self.data_dir.join("worker/identity"),
        }
    }

    /// Where a server keeps the workers' CA: as configured, else inside the data directory.
    pub fn worker_ca_dir(&self) -> PathBuf {
        match &self.cluster {
            ClusterMode::WorkerTier {
                worker_ca_dir: Some(dir),
                ..
            } => dir.into(),
            ClusterMode::WorkerTier { .. }
            | ClusterMode::SingleNode {}
            | ClusterMode::Raft { .. }
            | ClusterMode::Static { .. } => self.data_dir.join("cluster"),
        }
    }
}
