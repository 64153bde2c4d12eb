//! What a worker says of itself, and the answer that renews its lease.

use std::net::IpAddr;
use std::sync::Arc;

use dhow_core::ids::{Generation, ReplicaName, ServiceKey};
use dhow_core::spec::ServiceSpec;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::names::{WireNameError, role_name, service_key};
use crate::status::ReplicaStateName;

/// A heartbeat: all that the worker runs, and what it uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerStatusReport {
    pub node_id: u64,
    /// Unix nanoseconds on the worker's clock, for display only.
    pub ts_ns: u64,
    #[serde(default)]
    pub containers: Vec<WorkerContainerStatus>,
    pub resources: WorkerResourceUsage,
    /// Which life of the worker's ledger speaks; a ledger that was lost begins a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u64>,
    /// The newest entry of the ledger that this report tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The newest assignment revision that the worker has applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The open rollouts that the worker has prepared for: they are not handed to it again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<String>,
}

/// One replica as its worker sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerContainerStatus {
    pub service: String,
    pub role: String,
    pub replica: u32,
    /// A [`ReplicaStateName`] in lower case; text, so that a newer worker's state is still readable.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub overlay_ip: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Thousandths of a core that it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_used_milli: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
}

impl WorkerContainerStatus {
    /// The state, where this version knows it.
    pub fn known_state(&self) -> Option<ReplicaStateName> {
        self.state.parse().ok()
    }

    /// The service that the replica belongs to, as checked names.
    pub fn service_key(&self) -> Result<ServiceKey, WireNameError> {
        service_key(self.deployment.as_deref(), &self.service)
    }
}

impl TryFrom<&WorkerContainerStatus> for ReplicaName {
    type Error = WireNameError;

    /// The replica as checked names. An old worker knows no generations: its replicas are generation 0.
    fn try_from(status: &WorkerContainerStatus) -> Result<Self, WireNameError> {
        let ServiceKey { deployment, service } = status.service_key()?;
        Ok(Self {
            deployment,
            service,
            role: role_name(&status.role)?,
            index: status.replica,
            generation: Generation(status.generation.unwrap_or(0)),
        })
    }
}

/// What a worker's machine uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerResourceUsage {
    /// Cores in use. What is not a number is written as 0, because JSON has no other way to say it.
    #[serde(serialize_with = "finite")]
    pub cpu_used: f64,
    pub memory_used_bytes: u64,
    pub gpu_used: u32,
}

fn finite<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(if number.is_finite() { *number } else { 0.0 })
}

/// The answer to a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerStatusAck {
    /// The worker reports again within this time.
    pub next_ttl_secs: u32,
    /// Everything up to here is on the servers' disks: the ledger may forget it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable_seq: Option<u64>,
    /// The servers' picture differs: send the ledger again from this entry on, this one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_from: Option<u64>,
    /// Rollouts that are open for this worker and that it did not name: it pulls their images before its turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bootstrap: Vec<BootstrapRollout>,
    /// The term of the leader that answers. A worker that has seen a higher one does not act on what a lower one says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
}

/// An open rollout, handed to a worker that does not name it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BootstrapRollout {
    pub rollout_id: String,
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// What the roles of the service will run, each one once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub specs: Vec<Arc<ServiceSpec>>,
}
