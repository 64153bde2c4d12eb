//! A worker joins: its token is proved, counted in the log with the key that it brings, and its key is certified.

use std::sync::Arc;

use dhow_core::command::{ClusterCommand, Command, Outcome};
use dhow_core::ids::NodeId;
use dhow_core::state::{NodeInfo, NodeRole};
use dhow_wire::grpc::proto::{RegisterReply, RegisterRequest};
use dhow_wire::grpc::{Refusal, from_node_info};
use dhow_wire::{WorkerBootstrapToken, WorkerRegisterResponse};
use rcgen::{CertificateSigningRequestParams, PublicKeyData};

use super::join_error::JoinError;
use super::tier::{CertificateError, WorkerTier};
use crate::gateway::node_gateway::Inner;
use crate::runtime::WriteError;

/// The longest request for a certificate: one with a large key is below 3 KiB.
const CSR_BYTES_MAX: usize = 16 * 1024;

/// What a worker asks with.
pub(super) struct Joining {
    pub token: String,
    pub wish: Option<NodeId>,
    pub info: NodeInfo,
    pub csr_pem: Option<String>,
}

impl Inner {
    pub(super) fn tier(&self) -> Result<&WorkerTier, JoinError> {
        self.options.workers.as_ref().ok_or(JoinError::NoTier)
    }

    /// The cluster's id, once there is one.
    pub(super) fn cluster_id(&self) -> Result<Arc<str>, Refusal> {
        self.options.view.state().cluster_id.clone().ok_or(Refusal::Busy)
    }

    /// The call.
    pub(in crate::gateway) async fn register(
        &self,
        request: RegisterRequest,
    ) -> Result<RegisterReply, Refusal> {
        let info = request
            .info
            .ok_or_else(|| Refusal::Malformed("a worker says what it is in `info`".into()))?;
        let info = from_node_info(info).map_err(|error| Refusal::Malformed(error.to_string()))?;
        let joined = self.join(Joining {
            token: request.token,
            wish: request.desired_node_id.map(NodeId),
            info,
            csr_pem: request.csr_pem,
        });
        let joined = joined.await?;
        Ok(RegisterReply {
            node_id: joined.node_id,
            cluster_id: joined.cluster_id,
            heartbeat_ttl_secs: joined.heartbeat_ttl_secs,
            heartbeat_grace_secs: joined.heartbeat_grace_secs,
            internal_token: joined.internal_token,
            certificate_chain_pem: joined.certificate_chain_pem,
        })
    }

    /// Everything that can be refused without a write is, so that a bad request costs no use of a token.
    pub(super) async fn join(&self, joining: Joining) -> Result<WorkerRegisterResponse, JoinError> {
        let tier = self.tier()?;
        self.leading_term().await?;
        if !self.joins.allow(self.options.clock.monotonic_ms()) {
            return Err(Refusal::Busy.into());
        }
        let cluster_id = self.cluster_id()?;
        let now_unix_secs = self.options.clock.wall_unix_ms().div_euclid(1_000);
        let token = WorkerBootstrapToken::parse(&joining.token)?;
        let token = token.verify(&tier.token_key, &cluster_id, now_unix_secs)?;
        token.check_labels(&joining.info.labels)?;
        let key_hash = match &joining.csr_pem {
            Some(csr_pem) => key_hash(csr_pem)?,
            // Without a key nobody can prove to be the one who asked before: each request is a use.
            None => format!("none-{:032x}", rand::random::<u128>()),
        };
        let use_token = ClusterCommand::UseToken {
            nonce: token.nonce().to_string().into(),
            key_hash: key_hash.into(),
            now_unix_secs,
            wish: joining.wish,
            info: Arc::new(of_worker(joining.info)),
        };
        let (node, ttl_secs) = self.write_join(use_token).await?;
        let chain = joining
            .csr_pem
            .map(|csr_pem| tier.certificates.issue(&csr_pem, node));
        tracing::info!(%node, "a worker has joined");
        Ok(WorkerRegisterResponse {
            node_id: node.0,
            heartbeat_ttl_secs: ttl_secs,
            heartbeat_grace_secs: self.options.leases.grace_secs(),
            internal_token: tier.internal_tokens.issue(&cluster_id, node),
            certificate_chain_pem: chain.transpose().map_err(JoinError::Csr)?,
            cluster_id: cluster_id.to_string(),
        })
    }
}

impl Inner {
    /// Counts and registers, and gives the new node its lease. In a task of its own: should whoever asked be gone by
    /// then, the node has a lease all the same and is given up in time.
    async fn write_join(&self, use_token: ClusterCommand) -> Result<(NodeId, u32), JoinError> {
        let (input, leases) = (self.options.input.clone(), self.options.leases.clone());
        let written = tokio::spawn(async move {
            let applied = input.write(Command::Cluster(use_token), None).await?;
            Ok::<_, WriteError>(match applied.outcome {
                Outcome::Registered { node } => Some((node, leases.renew(node))),
                Outcome::Done
                | Outcome::Deployed { .. }
                | Outcome::Placed { .. }
                | Outcome::Reported { .. } => None,
            })
        });
        match written.await {
            Ok(Ok(Some((node, Some(ttl_secs))))) => Ok((node, ttl_secs)),
            Ok(Ok(Some((_, None)))) => Err(self.not_leader().into()),
            Ok(Ok(None)) | Err(_) => Err(Refusal::Busy.into()),
            Ok(Err(WriteError::Refused(refused))) => Err(JoinError::State(refused)),
            Ok(Err(error)) => Err(self.refusal(error).into()),
        }
    }
}

/// What State knows a key by. The request must be signed with its own key: nobody asks for another's.
pub(super) fn key_hash(csr_pem: &str) -> Result<String, JoinError> {
    let wrong = |why: &str| JoinError::Csr(CertificateError(why.to_owned()));
    if csr_pem.len() > CSR_BYTES_MAX {
        return Err(wrong("it is longer than any request for a certificate"));
    }
    let request = CertificateSigningRequestParams::from_pem(csr_pem);
    let request = request.map_err(|error| wrong(&error.to_string()))?;
    let hash = blake3::hash(&request.public_key.subject_public_key_info());
    Ok(hash.to_hex().to_string())
}

/// A worker is a worker that runs replicas, whatever it says.
fn of_worker(told: NodeInfo) -> NodeInfo {
    NodeInfo {
        role: NodeRole::Worker,
        runs_replicas: true,
        ..told
    }
}
