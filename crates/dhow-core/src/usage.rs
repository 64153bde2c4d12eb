//! What a node and its replicas use, as the node measures it. Told with heartbeats and kept in memory alone. A canary is
//! judged by what is counted of it, and the count of an adaptive service is decided by its load: both enter the log with
//! their figures. Nothing else is decided by any of this.

use serde::{Deserialize, Serialize};

use crate::ids::{DeploymentName, ReplicaName, ServiceKey, ServiceName};
use crate::rollout::Figures;

/// What a node uses, and what each of its replicas does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Thousandths of a core, over the time since the last measurement.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub replicas: Vec<(ReplicaName, ReplicaUsage)>,
    pub endpoints: Vec<EndpointRate>,
    pub canaries: Vec<CanaryCount>,
    /// It tells all that passes its balancer, and what is under way there: an endpoint that is not named is not called.
    pub tells_calls: bool,
}

/// What a node's balancer has counted of a canary and of the version beside it, since it knows of the canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanaryCount {
    pub service: ServiceKey,
    /// Which canary of the service.
    pub number: u32,
    pub figures: Figures,
}

/// What one replica uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaUsage {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// When its process was started, by the node's wall clock.
    pub started_unix_secs: Option<i64>,
}

/// How many calls of an endpoint passed a node since the last measurement: thousandths of a call a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRate {
    pub service: ServiceKey,
    pub endpoint: String,
    pub requests_milli: u64,
    pub errors_milli: u64,
    /// Calls that are under way, those that wait included.
    pub in_flight: u64,
    /// Requests that wait for a first replica.
    pub waiting: u64,
}

/// What a node has passed on for others that nobody can dial, since its balancer was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RelayFigures {
    /// Both ways.
    pub bytes: u64,
    /// Connections that were made.
    pub calls: u64,
    /// Those that were not: the node is not there, or too many are open.
    pub refused: u64,
    pub open: u64,
    /// Nodes with a tunnel here.
    pub nodes: u64,
}

/// The upper bounds of the classes that calls are counted in by the time that they took, in microseconds. Beyond the last
/// one there is one class more.
pub const LATENCY_BOUNDS_US: [u64; 14] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// What has passed one endpoint of a node since its balancer knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointFigures {
    /// `deployment/service/endpoint`.
    pub id: String,
    /// Requests of HTTP, connections of TCP, sessions of UDP.
    pub requests: u64,
    /// Those that no replica took or answered, and answers of HTTP from 500 on.
    pub errors: u64,
    /// Those of callers who may not call.
    pub refused: u64,
    /// From those who call.
    pub received_bytes: u64,
    /// To those who call.
    pub sent_bytes: u64,
    pub open: u64,
    /// Of those that are open, the requests that wait for a first replica.
    pub waiting: u64,
    /// Calls by the time until the answer began, or until a replica was connected to: one more than bounds.
    pub latency: Vec<u64>,
    pub latency_sum_us: u64,
    /// While a canary is tried: its number, and what was counted since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<(u32, Figures)>,
}

impl EndpointFigures {
    /// The service and the endpoint that the id names.
    pub fn endpoint(&self) -> Option<(ServiceKey, &str)> {
        let mut parts = self.id.splitn(3, '/');
        let (deployment, service, endpoint) = (parts.next()?, parts.next()?, parts.next()?);
        let key = ServiceKey {
            deployment: DeploymentName::new(deployment).ok()?,
            service: ServiceName::new(service).ok()?,
        };
        Some((key, endpoint))
    }
}

impl NodeUsage {
    /// Replicas that one message tells of: at about 100 bytes each, 100 KiB.
    pub const REPLICAS_MAX: usize = 1_000;
    /// Endpoints that one message tells of, the busiest first.
    pub const ENDPOINTS_MAX: usize = 256;
    /// Services with a canary that one message tells of: more rollouts at once are judged by fewer nodes' counts.
    pub const CANARIES_MAX: usize = 256;

    pub fn replica(&self, name: &ReplicaName) -> Option<&ReplicaUsage> {
        let mut all = self.replicas.iter();
        all.find(|(known, _)| known == name).map(|(_, usage)| usage)
    }
}
