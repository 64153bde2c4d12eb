//! The first words between a worker and the cluster. Both carry a secret, so neither prints itself whole.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::WorkerProfile;

/// What stands in place of a secret when a message is printed.
const HIDDEN: &str = "(hidden)";

/// How a [`WorkerProfile`] is described: the type itself is made where no descriptions are.
#[derive(ToSchema)]
#[schema(as = WorkerProfile)]
#[expect(dead_code, reason = "it is only described")]
struct ProfileSchema {
    /// Where the servers reach the worker.
    #[schema(examples("10.0.0.5:3669"))]
    api_addr: String,
    /// `linux`, `windows` or `darwin`.
    os: String,
    /// `x86_64` or `aarch64`.
    arch: String,
    #[schema(default = json!({}))]
    labels: std::collections::BTreeMap<String, String>,
    /// Whole cores; 0 where the worker does not say.
    #[schema(default = 0)]
    cpu_total: u32,
    #[schema(default = 0)]
    memory_total_bytes: u64,
}

/// A worker asks to join: its bootstrap token, what it is, and the key it wants certified.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerRegisterRequest {
    pub token: String,
    /// A wish; the leader gives the id and may give another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_node_id: Option<u64>,
    #[schema(value_type = ProfileSchema)]
    pub profile: WorkerProfile,
    /// The certificate signing request; a client that cannot do mutual TLS sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csr_pem: Option<String>,
    /// Chosen at random and kept by a client that sends no CSR: with it the same worker asking again is known for sure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
}

impl fmt::Debug for WorkerRegisterRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerRegisterRequest")
            .field("token", &HIDDEN)
            .field("desired_node_id", &self.desired_node_id)
            .field("profile", &self.profile)
            .field("csr_pem", &self.csr_pem)
            .field("client_id", &self.client_id.as_ref().map(|_| HIDDEN))
            .finish()
    }
}

/// The answer: who the worker is from now on, and its first time to live.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerRegisterResponse {
    pub node_id: u64,
    /// A worker refuses an answer from a cluster that is not its own.
    pub cluster_id: String,
    pub heartbeat_ttl_secs: u32,
    pub heartbeat_grace_secs: u32,
    /// Goes into the header `X-Dhow-Internal-Token` of later requests over HTTP.
    pub internal_token: String,
    /// The new leaf certificate and the ones above it, leaf first; present where a CSR was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_chain_pem: Option<String>,
}

impl WorkerRegisterResponse {
    /// Whether the answer comes from the cluster that the worker's token names.
    pub fn is_from_cluster(&self, cluster_id: &str) -> bool {
        self.cluster_id == cluster_id
    }
}

impl fmt::Debug for WorkerRegisterResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerRegisterResponse")
            .field("node_id", &self.node_id)
            .field("cluster_id", &self.cluster_id)
            .field("heartbeat_ttl_secs", &self.heartbeat_ttl_secs)
            .field("heartbeat_grace_secs", &self.heartbeat_grace_secs)
            .field("internal_token", &HIDDEN)
            .field("certificate_chain_pem", &self.certificate_chain_pem)
            .finish()
    }
}
