//! Who a worker is: its key, made here, and the certificate that it joined with a token for.

use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::NodeId;
use dhow_server::net::keys::{ALPN_WORKERS, WorkerKey, client_config_pinned};
use dhow_wire::WorkerBootstrapToken;
use dhow_wire::grpc::proto::RegisterRequest;
use dhow_wire::grpc::{Refusal, to_node_info};
use rustls::ClientConfig;
use tokio::time::timeout;

use super::search::Search;
use super::wire::connect;
use super::{Surroundings, info_of};
use crate::load::tally::Tally;

/// As the agent has it.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);

/// What workers join with.
#[derive(Clone, Debug)]
pub struct Invitation {
    pub token: WorkerBootstrapToken,
    /// Knows the cluster by the fingerprint in the token.
    pub tls: Arc<ClientConfig>,
}

impl Invitation {
    pub fn new(token: &str) -> anyhow::Result<Self> {
        let token = WorkerBootstrapToken::parse(token)?;
        let mut tls = client_config_pinned(token.ca_fingerprint())?;
        tls.alpn_protocols = ALPN_WORKERS.iter().map(|name| name.to_vec()).collect();
        Ok(Self {
            token,
            tls: Arc::new(tls),
        })
    }
}

/// A worker's id and the TLS settings with its certificate, which it has from joining.
pub struct Identity {
    pub node: NodeId,
    pub tls: Arc<ClientConfig>,
}

impl Identity {
    /// Joins: tries one server after the other until one lets the worker in, or says why none ever will.
    pub async fn join(around: &Surroundings, place: usize, search: &mut Search) -> Result<Self, String> {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let key = WorkerKey::generate().map_err(|error| said(&error))?;
        let csr_pem = key.csr_pem().map_err(|error| said(&error))?;
        let (invitation, from) = (&around.invitation, around.address_of(place));
        loop {
            let server = search.next().await;
            let Ok(mut connection) = connect(from, server, &invitation.tls).await else {
                Tally::count(&around.tally.unreached);
                continue;
            };
            let request = RegisterRequest {
                token: invitation.token.reveal(),
                desired_node_id: None,
                info: Some(to_node_info(&info_of(place, around))),
                csr_pem: Some(csr_pem.clone()),
            };
            let status = match timeout(CALL_TIMEOUT, connection.client.register(request)).await {
                Ok(Ok(reply)) => {
                    let reply = reply.into_inner();
                    let chain = reply.certificate_chain_pem.ok_or("no certificate came")?;
                    let tls = key.client_config(invitation.token.ca_fingerprint(), &chain);
                    search.is_node(NodeId(reply.node_id));
                    return Ok(Self {
                        node: NodeId(reply.node_id),
                        tls: Arc::new(tls.map_err(|error| said(&error))?),
                    });
                }
                Ok(Err(status)) => status,
                Err(_) => {
                    Tally::count(&around.tally.unreached);
                    continue;
                }
            };
            match Refusal::from_status(&status) {
                Some(Refusal::NotLeader { leader }) => {
                    Tally::count(&around.tally.sent_on);
                    search.sent_to(leader);
                }
                Some(Refusal::Busy | Refusal::TooOften) => Tally::count(&around.tally.joins_refused),
                Some(Refusal::Replaced | Refusal::ShuttingDown) | None => {
                    Tally::count(&around.tally.unreached);
                }
                Some(
                    refusal @ (Refusal::Credential(_)
                    | Refusal::NotGiven(_)
                    | Refusal::Malformed(_)
                    | Refusal::Identity(_)
                    | Refusal::UnknownNode),
                ) => return Err(refusal.to_string()),
            }
        }
    }
}
