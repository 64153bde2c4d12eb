//! What this node says of itself when it registers.

use std::net::SocketAddr;
use std::sync::Arc;

use dhow_core::state::{NodeInfo, NodeRole};
use dhow_wire::{ClusterMode, DaemonConfig, WorkerTierRole};

use crate::host;

/// Where a server of a worker tier takes workers, for those that are sent to it. People may set it for a server whose
/// workers reach it by another address.
pub const WORKER_ADDR_LABEL: &str = "dhow.worker-addr";

/// A server of a worker tier with this label runs replicas too.
const RUNS_REPLICAS: (&str, &str) = ("dhow.replicas", "true");

pub fn node_info(config: &DaemonConfig, role: NodeRole) -> NodeInfo {
    let mut capacity = host::capacity();
    if let Some(cpu) = config.resources.cpu {
        capacity.cpu_milli = cpu.0;
    }
    if let Some(memory) = config.resources.memory {
        capacity.memory_bytes = memory.0;
    }
    let labelled = config.labels.get(RUNS_REPLICAS.0).map(String::as_str) == Some(RUNS_REPLICAS.1);
    let runs_replicas = match &config.cluster {
        ClusterMode::SingleNode {} | ClusterMode::Raft { .. } | ClusterMode::Static { .. } => true,
        ClusterMode::WorkerTier { .. } => role == NodeRole::Worker || labelled,
    };
    let mut labels = config.labels.clone();
    if let Some(addr) = worker_addr(config) {
        labels
            .entry(WORKER_ADDR_LABEL.to_owned())
            .or_insert(addr.to_string());
    }
    NodeInfo {
        role,
        api_addr: config.api_addr.addr().map(|addr| addr.to_string().into()),
        os: host::OS.into(),
        arch: host::ARCH.into(),
        labels: Arc::new(labels),
        capacity,
        runs_replicas,
        tries_settings: true,
        mounts_files: true,
        runs_steps: true,
        volumes: dhow_driver::volume::support(&config.data_dir),
        mesh_addr: config.mesh_addr().map(|mesh| mesh.told.to_string().into()),
    }
}

/// An address that means all of this host's is no address for others: there the one of its API stands in.
fn worker_addr(config: &DaemonConfig) -> Option<SocketAddr> {
    match &config.cluster {
        ClusterMode::WorkerTier {
            role: WorkerTierRole::Server,
            worker_grpc_addr,
            ..
        } => Some(match worker_grpc_addr.ip().is_unspecified() {
            true => SocketAddr::new(config.api_addr.addr()?.ip(), worker_grpc_addr.port()),
            false => *worker_grpc_addr,
        }),
        ClusterMode::WorkerTier {
            role: WorkerTierRole::Worker,
            ..
        }
        | ClusterMode::SingleNode {}
        | ClusterMode::Raft { .. }
        | ClusterMode::Static { .. } => None,
    }
}
