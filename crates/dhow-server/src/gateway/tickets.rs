//! The tickets of nodes: made from the cluster's key by whoever tells a node its directory, anew when what the node runs
//! changes and when half of a ticket's time is over. With them go the CAs whose nodes are believed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::state::State;
use dhow_wire::grpc::MeshPass;
use dhow_wire::ticket::{TICKET_SECS, Ticket};
use ed25519_dalek::SigningKey;

use crate::net::keys::{ClusterKey, IssueError, believed_cas_pem};

/// Issues tickets, and says which CAs are believed; clones are the same.
#[derive(Clone)]
pub struct TicketIssuer {
    key: Arc<SigningKey>,
    cluster_key: ClusterKey,
    believed: Arc<Mutex<Option<Believed>>>,
}

/// The CAs of some generations of workers, made once for all nodes.
struct Believed {
    newest: u32,
    older: Vec<u32>,
    pem: Arc<str>,
}

impl TicketIssuer {
    pub fn new(key: &ClusterKey) -> Self {
        Self {
            key: Arc::new(key.ticket_key()),
            cluster_key: key.clone(),
            believed: Arc::default(),
        }
    }

    /// The CAs that are believed by this state, as PEM.
    fn believed(&self, state: &State, now_unix_secs: i64) -> Result<Arc<str>, IssueError> {
        let (newest, older) = (state.worker_cas.newest(), state.worker_cas.older(now_unix_secs));
        // Replaced as a whole under the lock.
        let mut known = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*known
            && (known.newest, &known.older) == (newest, &older)
        {
            return Ok(Arc::clone(&known.pem));
        }
        let pem: Arc<str> = believed_cas_pem(&self.cluster_key, newest, &older)?.into();
        *known = Some(Believed {
            newest,
            older,
            pem: Arc::clone(&pem),
        });
        Ok(pem)
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
    /// The CAs that it believes.
    believed: Option<Arc<str>>,
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
        let mut pass = self.ticket_due(issuer, state, node, now_unix_secs);
        match issuer.believed(state, now_unix_secs) {
            Ok(believed) => {
                let is_news = self.believed.as_ref() != Some(&believed);
                pass.believed_cas = is_news.then(|| Arc::clone(&believed));
                self.believed = Some(believed);
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, %node, "the CAs that nodes believe cannot be made; those from before count");
            }
        }
        pass
    }

    fn ticket_due(
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
                    ..nothing
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cas_that_are_believed_are_told_when_they_change() {
        let issuer = TicketIssuer::new(&ClusterKey::generate().unwrap());
        let (mut given, mut state) = (GivenTicket::default(), State::default());
        let mut told = |state: &State, now_unix_secs| {
            let pass = given.due(&issuer, state, NodeId(1), now_unix_secs);
            pass.believed_cas.map(|pem| pem.matches("BEGIN").count())
        };
        assert_eq!(told(&state, 0), Some(2), "the servers' and the workers'");
        assert_eq!(told(&state, 0), None);
        state.worker_cas.rotations = 1;
        state.worker_cas.retired.insert(1, 100);
        assert_eq!(told(&state, 99), Some(3));
        assert_eq!(told(&state, 99), None);
        assert_eq!(told(&state, 100), Some(2), "the time of the replaced one is over");
    }
}
