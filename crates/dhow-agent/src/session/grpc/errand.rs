//! What a worker asks without a session: to join with its token, or for a certificate in place of one that has
//! expired or for its proxy.

use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_core::state::NodeInfo;
use dhow_wire::WorkerRegisterResponse;
use dhow_wire::grpc::proto::{ReachRequest, RegisterRequest, RenewRequest};
use dhow_wire::grpc::{KeepAlive, Refusal, to_node_info};
use tokio::time::timeout;
use tonic::Status;

use super::backoff::Backoff;
use super::connector::Connector;
use super::routes::Routes;
use super::seeker::Seeker;
use super::wire::{Client, connect};
use crate::limits::CALL_TIMEOUT;

/// Where to ask, and how.
#[derive(Clone)]
pub struct Errand {
    pub routes: Arc<dyn Routes>,
    pub connector: Arc<dyn Connector>,
    pub backoff: Backoff,
}

/// What a worker joins with.
#[derive(Clone)]
pub struct Joining {
    /// The bootstrap token's line.
    pub token: String,
    /// The cluster that the token names: an answer of another one is refused.
    pub cluster_id: String,
    pub wish: Option<NodeId>,
    pub info: NodeInfo,
    pub csr_pem: Option<String>,
}

/// Why asking again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrandError {
    #[error("the cluster refuses: {0}")]
    Refused(String),
    /// It was removed.
    #[error("the cluster does not know this node")]
    UnknownNode,
    #[error(
        "the server belongs to cluster {found:?}, the token to {wanted:?}: check the servers that this worker is given"
    )]
    OtherCluster { found: String, wanted: String },
}

impl Errand {
    /// Joins. Tries one server after the other until one lets the worker in or refuses it; dropped when the caller has
    /// waited long enough.
    pub async fn join(&self, joining: &Joining) -> Result<WorkerRegisterResponse, ErrandError> {
        let request = || RegisterRequest {
            token: joining.token.clone(),
            desired_node_id: joining.wish.map(|wish| wish.0),
            info: Some(to_node_info(&joining.info)),
            csr_pem: joining.csr_pem.clone(),
        };
        let reply = self.ask(async |mut client| client.register(request()).await);
        let reply = reply.await?;
        if reply.cluster_id != joining.cluster_id {
            return Err(ErrandError::OtherCluster {
                found: reply.cluster_id,
                wanted: joining.cluster_id.clone(),
            });
        }
        Ok(WorkerRegisterResponse {
            node_id: reply.node_id,
            cluster_id: reply.cluster_id,
            heartbeat_ttl_secs: reply.heartbeat_ttl_secs,
            heartbeat_grace_secs: reply.heartbeat_grace_secs,
            internal_token: reply.internal_token,
            certificate_chain_pem: reply.certificate_chain_pem,
        })
    }

    /// A new certificate; who asks is proved by the connector's old one.
    pub async fn renew(&self, csr_pem: &str) -> Result<String, ErrandError> {
        self.certificate(csr_pem, false).await
    }

    /// A certificate for the node's proxy.
    pub async fn proxy_certificate(&self, csr_pem: &str) -> Result<String, ErrandError> {
        self.certificate(csr_pem, true).await
    }

    /// Whether a server can dial this node's door at its address; where it cannot, why.
    pub async fn reach(&self, api_addr: &str) -> Result<Result<(), String>, ErrandError> {
        let request = || ReachRequest {
            api_addr: api_addr.to_owned(),
        };
        let reply = self.ask(async |mut client| client.reach(request()).await).await?;
        Ok(match reply.reached {
            true => Ok(()),
            false => Err(reply.why),
        })
    }

    async fn certificate(&self, csr_pem: &str, for_proxy: bool) -> Result<String, ErrandError> {
        let request = || RenewRequest {
            csr_pem: csr_pem.to_owned(),
            for_proxy,
        };
        let reply = self.ask(async |mut client| client.renew(request()).await);
        Ok(reply.await?.certificate_chain_pem)
    }

    async fn ask<T>(
        &self,
        call: impl AsyncFn(Client) -> Result<tonic::Response<T>, Status>,
    ) -> Result<T, ErrandError> {
        let mut seeker = Seeker::new(Arc::clone(&self.routes), self.backoff, rand::random());
        loop {
            let endpoint = seeker.next().await;
            let address = &endpoint.address;
            let (client, _driver, _) =
                match connect(self.connector.as_ref(), &endpoint, Some(KeepAlive::OFTEN)).await {
                    Ok(connected) => connected,
                    Err(why) => {
                        tracing::info!(address, why, "a server cannot be asked; trying the next one");
                        continue;
                    }
                };
            match timeout(CALL_TIMEOUT, call(client)).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => match Refusal::from_status(&status) {
                    Some(Refusal::NotLeader { leader: Some(leader) }) => seeker.sent_to(leader),
                    Some(
                        refusal @ (Refusal::Credential(_)
                        | Refusal::NotGiven(_)
                        | Refusal::Malformed(_)
                        | Refusal::Identity(_)),
                    ) => return Err(ErrandError::Refused(refusal.to_string())),
                    Some(Refusal::UnknownNode) => return Err(ErrandError::UnknownNode),
                    Some(
                        Refusal::NotLeader { leader: None }
                        | Refusal::Busy
                        | Refusal::TooOften
                        | Refusal::Replaced
                        | Refusal::ShuttingDown,
                    )
                    | None => tracing::info!(
                        address,
                        why = status.message(),
                        "a server did not answer; trying again"
                    ),
                },
                Err(_) => tracing::info!(address, "a server did not answer in time; trying the next one"),
            }
        }
    }
}
