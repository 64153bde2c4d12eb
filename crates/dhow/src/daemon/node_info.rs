//! What this node says of itself when it registers.

use std::sync::Arc;

use dhow_core::state::{NodeInfo, NodeRole};
use dhow_wire::{ClusterMode, DaemonConfig};

use crate::host;

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
    NodeInfo {
        role,
        api_addr: Some(config.api_addr.to_string().into()),
        os: host::OS.into(),
        arch: host::ARCH.into(),
        labels: Arc::new(config.labels.clone()),
        capacity,
        runs_replicas,
    }
}
