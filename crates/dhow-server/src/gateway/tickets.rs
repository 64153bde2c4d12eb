//! The tickets of nodes: made from the cluster's key by whoever tells a node its directory, anew when what the node runs
//! changes and when half of a ticket's time is over.

use std::collections::BTreeSet;
use std::sync::Arc;

use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::state::State;
use dhow_wire::grpc::MeshPass;
use dhow_wire::ticket::{TICKET_SECS, Ticket};
use ed25519_dalek::SigningKey;

use crate::net::keys::ClusterKey;

/// Issues tickets; clones are the same.
#[derive(Clone)]
pub struct TicketIssuer {
    key: Arc<SigningKey>,
}

impl TicketIssuer {
    pub fn new(key: &ClusterKey) -> Self {
        Self {
            key: Arc::new(key.ticket_key()),
        }
    }
}

/// What one node has been given. Kept by each session.
#[derive(Debug, Default)]
pub struct GivenTicket {
    services: BTreeSet<ServiceKey>,
    /// None before the first one.
    renew_at_unix_secs: Option<i64>,
    /// Whether the node knows how the tickets of others are proved.
    has_key: bool,
}

impl GivenTicket {
    /// When the next one is due, whatever changes before.
    pub fn renew_at_unix_secs(&self) -> Option<i64> {
        self.renew_at_unix_secs
    }

    /// What the node is to be given now: nothing where what it has will do.
    pub fn due(
        &mut self,
        issuer: &TicketIssuer,
        state: &State,
        node: NodeId,
        now_unix_secs: i64,
    ) -> MeshPass {
        let nothing = MeshPass::default();
        let (Some(cluster_id), Some(known)) = (state.cluster_id.as_deref(), state.node(node)) else {
            return nothing;
        };
        let ids: BTreeSet<_> = known.replica_keys().map(|key| key.service).collect();
        let services = ids.into_iter().filter_map(|id| state.service(id));
        let services: BTreeSet<ServiceKey> = services.map(|service| service.key.clone()).collect();
        let has_time = self.renew_at_unix_secs.is_some_and(|at| now_unix_secs < at);
        if has_time && services == self.services {
            return nothing;
        }
        match Ticket::issue(&issuer.key, cluster_id, node, &services, now_unix_secs) {
            Ok(ticket) => {
                self.services = services;
                self.renew_at_unix_secs = Some(ticket.renew_at_unix_secs());
                let is_first = !std::mem::replace(&mut self.has_key, true);
                let ticket_key = is_first.then(|| issuer.key.verifying_key().to_bytes());
                MeshPass {
                    ticket: Some(ticket.text().into()),
                    ticket_key,
                }
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, %node, "a node gets no ticket, and cannot call replicas of other nodes");
                self.services = services;
                self.renew_at_unix_secs = Some(now_unix_secs.saturating_add(TICKET_SECS / 2));
                nothing
            }
        }
    }
}
