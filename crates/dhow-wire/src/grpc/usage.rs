//! What a node uses, beside its heartbeat.

use dhow_core::ids::{DeploymentName, Generation, ReplicaName, RoleName, ServiceName};
use dhow_core::usage::{NodeUsage, ReplicaUsage};

use super::proto;

pub fn to_usage(usage: &NodeUsage) -> proto::Usage {
    let replicas = usage.replicas.iter().take(NodeUsage::REPLICAS_MAX);
    proto::Usage {
        cpu_milli: usage.cpu_milli,
        memory_bytes: usage.memory_bytes,
        replicas: replicas
            .map(|(name, used)| proto::ReplicaUsage {
                deployment: name.deployment.to_string(),
                service: name.service.to_string(),
                role: name.role.to_string(),
                index: name.index,
                generation: name.generation.0,
                cpu_milli: used.cpu_milli,
                memory_bytes: used.memory_bytes,
                started_unix_secs: used.started_unix_secs,
            })
            .collect(),
    }
}

/// What can be read of it. It is only shown: a replica whose name is none is left out.
pub fn from_usage(usage: &proto::Usage) -> NodeUsage {
    let replicas = usage.replicas.iter().take(NodeUsage::REPLICAS_MAX);
    NodeUsage {
        cpu_milli: usage.cpu_milli,
        memory_bytes: usage.memory_bytes,
        replicas: replicas.filter_map(replica).collect(),
    }
}

fn replica(told: &proto::ReplicaUsage) -> Option<(ReplicaName, ReplicaUsage)> {
    let name = ReplicaName {
        deployment: DeploymentName::new(&told.deployment).ok()?,
        service: ServiceName::new(&told.service).ok()?,
        role: RoleName::new(&told.role).ok()?,
        index: told.index,
        generation: Generation(told.generation),
    };
    let usage = ReplicaUsage {
        cpu_milli: told.cpu_milli,
        memory_bytes: told.memory_bytes,
        started_unix_secs: told.started_unix_secs,
    };
    Some((name, usage))
}
