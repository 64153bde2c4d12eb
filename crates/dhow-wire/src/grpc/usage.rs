//! What a node uses, beside its heartbeat.

use dhow_core::ids::{DeploymentName, Generation, ReplicaName, RoleName, ServiceKey, ServiceName};
use dhow_core::rollout::{Counted, Figures};
use dhow_core::usage::{CanaryCount, EndpointRate, NodeUsage, ReplicaUsage};

use super::proto;

pub fn to_usage(usage: &NodeUsage) -> proto::Usage {
    let replicas = usage.replicas.iter().take(NodeUsage::REPLICAS_MAX);
    let endpoints = usage.endpoints.iter().take(NodeUsage::ENDPOINTS_MAX);
    let canaries = usage.canaries.iter().take(NodeUsage::CANARIES_MAX);
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
        endpoints: endpoints
            .map(|rate| proto::EndpointRate {
                deployment: rate.service.deployment.to_string(),
                service: rate.service.service.to_string(),
                endpoint: rate.endpoint.clone(),
                requests_milli: rate.requests_milli,
                errors_milli: rate.errors_milli,
                in_flight: rate.in_flight,
                waiting: rate.waiting,
            })
            .collect(),
        canaries: canaries
            .map(|count| proto::CanaryCount {
                deployment: count.service.deployment.to_string(),
                service: count.service.service.to_string(),
                number: count.number,
                canary_requests: count.figures.canary.requests,
                canary_errors: count.figures.canary.errors,
                base_requests: count.figures.base.requests,
                base_errors: count.figures.base.errors,
            })
            .collect(),
        tells_calls: usage.tells_calls,
    }
}

fn canary(told: &proto::CanaryCount) -> Option<CanaryCount> {
    let service = ServiceKey {
        deployment: DeploymentName::new(&told.deployment).ok()?,
        service: ServiceName::new(&told.service).ok()?,
    };
    // No more can fail than there were.
    let counted = |requests: u64, errors: u64| Counted {
        requests,
        errors: errors.min(requests),
    };
    Some(CanaryCount {
        service,
        number: told.number,
        figures: Figures {
            canary: counted(told.canary_requests, told.canary_errors),
            base: counted(told.base_requests, told.base_errors),
        },
    })
}

/// What can be read of it: what has a name that is none is left out.
pub fn from_usage(usage: &proto::Usage) -> NodeUsage {
    let replicas = usage.replicas.iter().take(NodeUsage::REPLICAS_MAX);
    let endpoints = usage.endpoints.iter().take(NodeUsage::ENDPOINTS_MAX);
    let canaries = usage.canaries.iter().take(NodeUsage::CANARIES_MAX);
    NodeUsage {
        cpu_milli: usage.cpu_milli,
        memory_bytes: usage.memory_bytes,
        replicas: replicas.filter_map(replica).collect(),
        endpoints: endpoints.filter_map(endpoint).collect(),
        canaries: canaries.filter_map(canary).collect(),
        tells_calls: usage.tells_calls,
    }
}

fn endpoint(told: &proto::EndpointRate) -> Option<EndpointRate> {
    // The longest name that an endpoint may have, many times over.
    const NAME_MAX_BYTES: usize = 512;
    let service = ServiceKey {
        deployment: DeploymentName::new(&told.deployment).ok()?,
        service: ServiceName::new(&told.service).ok()?,
    };
    (told.endpoint.len() <= NAME_MAX_BYTES).then(|| EndpointRate {
        service,
        endpoint: told.endpoint.clone(),
        requests_milli: told.requests_milli,
        errors_milli: told.errors_milli,
        in_flight: told.in_flight,
        // No more wait than there are.
        waiting: told.waiting.min(told.in_flight),
    })
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
