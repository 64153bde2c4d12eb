//! The ticket that a node's proxy shows to those of other nodes: which services the node runs, signed by the cluster. With
//! it a node cannot call in the name of a deployment of which it runs nothing.
//!
//! Servers issue it with the directory; the far proxy proves it against the key that its own directory brought and the
//! certificate of the connection. An unproved ticket is another type than a proved one. Times are parameters.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dhow_core::ids::{NodeId, ServiceKey};
use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::signing::{Domain, SIGNATURE_BYTES};

/// The longest ticket text that is looked at: two thousand services at some 40 characters, in base64.
pub const TICKET_CHARS_MAX: usize = 128 * 1024;

/// How long a ticket counts. A node has its next one when half of that is over.
pub const TICKET_SECS: i64 = 3_600;

/// The first byte of a ticket tells how to read the rest.
const VERSION: u8 = 1;

/// What a ticket says. Unknown claims are refused: they may be restrictions that this version would fail to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    cluster_id: String,
    node_id: u64,
    /// `deployment/service`.
    services: BTreeSet<String>,
    issued_unix_secs: i64,
    expires_unix_secs: i64,
}

/// A ticket as it travels. What it says is not proved yet.
#[derive(Clone, Debug)]
pub struct Ticket {
    claims: Claims,
    /// Version, signature and claims, as they were received.
    bytes: Vec<u8>,
}

/// A ticket whose signature, cluster and node are proved. Only [`Ticket::verify`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedTicket {
    claims: Claims,
}

/// Why a ticket does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    #[error("the ticket has no form that this version knows")]
    Malformed,
    #[error("the ticket is longer than {TICKET_CHARS_MAX} characters: the node runs too many services")]
    TooLong,
    #[error("the ticket is not signed by this cluster")]
    BadSignature,
    #[error("the ticket belongs to another cluster")]
    AnotherCluster,
    #[error("the ticket is that of node {of_ticket}, and node {shown_by} shows it")]
    AnotherNode { of_ticket: NodeId, shown_by: NodeId },
}

impl Ticket {
    /// Makes a node's ticket for the services that it runs.
    pub fn issue<'a>(
        key: &SigningKey,
        cluster_id: &str,
        node: NodeId,
        services: impl IntoIterator<Item = &'a ServiceKey>,
        now_unix_secs: i64,
    ) -> Result<Self, TicketError> {
        let claims = Claims {
            cluster_id: cluster_id.to_owned(),
            node_id: node.0,
            services: services.into_iter().map(ServiceKey::to_string).collect(),
            issued_unix_secs: now_unix_secs,
            expires_unix_secs: now_unix_secs.saturating_add(TICKET_SECS),
        };
        let body = serde_json::to_vec(&claims).map_err(|_| TicketError::Malformed)?;
        let signature = Domain::NodeTicket.sign(key, &[&[VERSION], &body]);
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&signature);
        bytes.extend_from_slice(&body);
        let ticket = Self { claims, bytes };
        match ticket.text().len() > TICKET_CHARS_MAX {
            true => Err(TicketError::TooLong),
            false => Ok(ticket),
        }
    }

    pub fn parse(text: &str) -> Result<Self, TicketError> {
        if text.len() > TICKET_CHARS_MAX {
            return Err(TicketError::TooLong);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| TicketError::Malformed)?;
        let (version, rest) = bytes.split_first().ok_or(TicketError::Malformed)?;
        let body = rest.get(SIGNATURE_BYTES..).filter(|_| *version == VERSION);
        let claims = serde_json::from_slice(body.ok_or(TicketError::Malformed)?);
        let claims = claims.map_err(|_| TicketError::Malformed)?;
        Ok(Self { claims, bytes })
    }

    /// The one line that travels.
    pub fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.bytes)
    }

    /// The cluster that the ticket names. It proves nothing.
    pub fn cluster_id(&self) -> &str {
        &self.claims.cluster_id
    }

    /// When its node needs the next one.
    pub fn renew_at_unix_secs(&self) -> i64 {
        let Claims {
            issued_unix_secs,
            expires_unix_secs,
            ..
        } = &self.claims;
        issued_unix_secs.saturating_add(expires_unix_secs.saturating_sub(*issued_unix_secs) / 2)
    }

    /// Proves the ticket: signed by the cluster with this key, and of the node that shows it.
    pub fn verify(
        self,
        key: &VerifyingKey,
        cluster_id: &str,
        shown_by: NodeId,
    ) -> Result<VerifiedTicket, TicketError> {
        if self.claims.cluster_id != cluster_id {
            return Err(TicketError::AnotherCluster);
        }
        let rest = self.bytes.get(1..);
        let (signature, body) = rest
            .and_then(|rest| rest.split_first_chunk::<SIGNATURE_BYTES>())
            .ok_or(TicketError::Malformed)?;
        if !Domain::NodeTicket.verifies(key, &[&[VERSION], body], signature) {
            return Err(TicketError::BadSignature);
        }
        let of_ticket = NodeId(self.claims.node_id);
        if of_ticket != shown_by {
            return Err(TicketError::AnotherNode { of_ticket, shown_by });
        }
        Ok(VerifiedTicket { claims: self.claims })
    }
}

impl VerifiedTicket {
    /// Deployment and service of the replicas that the node runs, in whose names it calls.
    pub fn callers(&self) -> impl Iterator<Item = (&str, &str)> {
        let services = self.claims.services.iter();
        services.filter_map(|service| service.split_once('/'))
    }

    /// From this second on its time is over. While nobody can issue new ones, the far side may let it count for longer.
    pub fn expires_unix_secs(&self) -> i64 {
        self.claims.expires_unix_secs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhow_core::ids::{DeploymentName, ServiceName};

    const NOW: i64 = 1_700_000_000;

    fn key(deployment: &str, service: &str) -> ServiceKey {
        ServiceKey {
            deployment: DeploymentName::new(deployment).unwrap(),
            service: ServiceName::new(service).unwrap(),
        }
    }

    fn signer() -> SigningKey {
        SigningKey::from_bytes(&[9; 32])
    }

    fn issued() -> Ticket {
        let services = [key("shop", "web"), key("shop", "db")];
        Ticket::issue(&signer(), "c1", NodeId(7), &services, NOW).unwrap()
    }

    #[test]
    fn a_ticket_says_what_its_node_runs() {
        let ticket = Ticket::parse(&issued().text()).unwrap();
        assert_eq!(ticket.renew_at_unix_secs(), NOW + TICKET_SECS / 2);
        let proved = ticket.verify(&signer().verifying_key(), "c1", NodeId(7)).unwrap();
        let callers: Vec<_> = proved.callers().collect();
        assert_eq!(callers, [("shop", "db"), ("shop", "web")]);
        assert_eq!(proved.expires_unix_secs(), NOW + TICKET_SECS);
    }

    #[test]
    fn what_is_not_the_clusters_own_is_refused() {
        let public = signer().verifying_key();
        let refused =
            |ticket: Ticket, cluster, node| ticket.verify(&public, cluster, NodeId(node)).unwrap_err();
        assert_eq!(refused(issued(), "c2", 7), TicketError::AnotherCluster);
        let another = TicketError::AnotherNode {
            of_ticket: NodeId(7),
            shown_by: NodeId(8),
        };
        assert_eq!(refused(issued(), "c1", 8), another);
        let other = SigningKey::from_bytes(&[8; 32]);
        let forged = Ticket::issue(&other, "c1", NodeId(7), &[key("blog", "web")], NOW).unwrap();
        assert_eq!(refused(forged, "c1", 7), TicketError::BadSignature);
        let mut bytes = URL_SAFE_NO_PAD.decode(issued().text()).unwrap();
        let place = bytes.windows(3).position(|part| part == b"web").unwrap();
        bytes[place] = b'x';
        let changed = Ticket::parse(&URL_SAFE_NO_PAD.encode(&bytes)).unwrap();
        assert_eq!(refused(changed, "c1", 7), TicketError::BadSignature);
    }

    #[test]
    fn what_is_no_ticket_is_refused() {
        for text in ["", "!", "AQ", &URL_SAFE_NO_PAD.encode([2; 100])] {
            assert_eq!(
                Ticket::parse(text).unwrap_err(),
                TicketError::Malformed,
                "{text:?}"
            );
        }
        let long = "A".repeat(TICKET_CHARS_MAX + 1);
        assert_eq!(Ticket::parse(&long).unwrap_err(), TicketError::TooLong);
        let many: Vec<ServiceKey> = (0..4_000)
            .map(|n| key("shop", &format!("service-with-a-name-{n}")))
            .collect();
        let issued = Ticket::issue(&signer(), "c1", NodeId(7), &many, NOW);
        assert_eq!(issued.unwrap_err(), TicketError::TooLong);
    }
}
