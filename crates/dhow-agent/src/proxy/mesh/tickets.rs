//! What a ticket says once the cluster's signature on it was checked: the node, and whose replicas it runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_wire::ticket::{Ticket, TicketError};
use ed25519_dalek::VerifyingKey;

use crate::proxy::table::{Allowed, Peer, TicketKey};

/// A ticket that the cluster has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTicket {
    /// Deployment and service of the replicas that the node runs.
    pub callers: BTreeSet<(String, String)>,
    pub expires_unix_secs: i64,
}

impl HeldTicket {
    pub fn has(&self, deployment: &str, service: &str) -> bool {
        // A set of pairs of texts cannot be asked with borrowed ones.
        self.callers
            .contains(&(deployment.to_owned(), service.to_owned()))
    }

    /// The replicas that the node runs, each as a caller.
    pub fn replicas(&self) -> impl Iterator<Item = Peer> + '_ {
        self.callers.iter().map(|(deployment, service)| {
            let who = Allowed {
                deployment: deployment.clone(),
                service: service.clone(),
            };
            Peer::Replicas(Arc::from([who]))
        })
    }
}

/// Why a caller has no ticket that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTicket {
    #[error("its node has shown no ticket on this connection")]
    NotShown,
    #[error("the time of its node's ticket is over")]
    Ended,
    #[error("this node does not know yet how tickets are proved")]
    NoKey,
    #[error(transparent)]
    Unproved(#[from] TicketError),
}

/// Reads the tickets of other nodes, with the cluster's public key. Without one no ticket counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TicketCheck(Option<(String, VerifyingKey)>);

impl TicketCheck {
    /// A key that is none counts as none.
    pub fn new(key: Option<&TicketKey>) -> Self {
        Self(key.and_then(|key| {
            let public = VerifyingKey::from_bytes(&key.public_key).ok()?;
            Some((key.cluster_id.clone(), public))
        }))
    }

    /// What the ticket of a node says, where the cluster has signed it for that node.
    pub fn read(&self, text: &str, node: u64) -> Result<HeldTicket, NoTicket> {
        let (cluster_id, key) = self.0.as_ref().ok_or(NoTicket::NoKey)?;
        let proved = Ticket::parse(text)?.verify(key, cluster_id, NodeId(node))?;
        let callers = proved.callers();
        let callers = callers.map(|(deployment, service)| (deployment.to_owned(), service.to_owned()));
        Ok(HeldTicket {
            callers: callers.collect(),
            expires_unix_secs: proved.expires_unix_secs(),
        })
    }
}
