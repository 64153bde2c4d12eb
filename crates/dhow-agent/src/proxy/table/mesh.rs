//! What a table says of other nodes: where their proxies listen for this one, and what it shows to them. Keys and
//! certificates do not stand in a table.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use dhow_core::directory::RELAYS_MAX;

use super::{TableError, at_most};

/// Nodes of a cluster with replicas of services that this node uses.
pub const PEERS_MAX: usize = 16_384;
/// Nodes that were removed lately: as many as servers note.
pub const REMOVED_MAX: usize = 16_384;
/// A ticket names the services of a node: two thousand of them at 64 bytes.
pub const TICKET_MAX_BYTES: usize = 128 * 1024;

/// The servers' CA and nine of workers, at less than a kilobyte each.
const CAS_MAX_BYTES: usize = 32 * 1024;

/// This node's place among the nodes' proxies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mesh {
    /// This node.
    pub node: u64,
    pub listen: SocketAddr,
    #[serde(default)]
    pub peers: Vec<MeshPeer>,
    /// Nodes that cannot be dialled, and the nodes through whom they are called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relayed: Vec<RelayedPeer>,
    /// Nobody can dial this node: it keeps a tunnel to each of these, and is called through them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<u64>,
    /// This node passes on for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayDuty>,
    /// What this node shows to others, so that they know whose replicas it runs.
    #[serde(default)]
    pub ticket: Option<String>,
    /// What tickets of other nodes are proved with; without it none counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket_key: Option<TicketKey>,
    /// Nodes that were removed from the cluster and whose certificates may still be good: they are not let in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<u64>,
    /// The CAs whose nodes are believed, as PEM; where they are not said, those that came with the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub believed_cas: Option<String>,
}

/// The cluster's word on tickets: its name, and the public half of the key that signs them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketKey {
    pub cluster_id: String,
    /// Ed25519.
    pub public_key: [u8; 32],
}

/// The proxy of another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshPeer {
    pub node: u64,
    pub addr: SocketAddr,
}

/// The proxy of a node that cannot be dialled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedPeer {
    pub node: u64,
    /// The first before the others.
    pub relays: Vec<u64>,
}

/// What a node that passes on may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayDuty {
    pub bytes_per_second: u64,
}

impl Mesh {
    pub(super) fn check(&self) -> Result<(), TableError> {
        at_most("other nodes", self.peers.len() + self.relayed.len(), PEERS_MAX)?;
        at_most("relays", self.relays.len(), RELAYS_MAX)?;
        at_most("removed nodes", self.removed.len(), REMOVED_MAX)?;
        if let Some(ticket) = &self.ticket {
            at_most("bytes of ticket", ticket.len(), TICKET_MAX_BYTES)?;
        }
        if let Some(cas) = &self.believed_cas {
            at_most("bytes of CAs", cas.len(), CAS_MAX_BYTES)?;
        }
        let listens = std::iter::once(self.listen).chain(self.peers.iter().map(|peer| peer.addr));
        if let Some(addr) = listens.into_iter().find(|addr| addr.port() == 0) {
            return Err(TableError::NoPort { addr });
        }
        let mut seen = BTreeSet::from([self.node]);
        let relayed = self.relayed.iter().map(|peer| peer.node);
        for node in self.peers.iter().map(|peer| peer.node).chain(relayed) {
            if !seen.insert(node) {
                return Err(TableError::SameNode { node });
            }
        }
        for peer in &self.relayed {
            at_most("relays", peer.relays.len(), RELAYS_MAX)?;
        }
        Ok(())
    }
}
