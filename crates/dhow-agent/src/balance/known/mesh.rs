//! This node's place among the nodes' proxies: how others are reached, through whom this node is, and whether it passes on.

use dhow_core::directory::MeshWay;
use dhow_core::ids::NodeId;
use dhow_wire::grpc::MeshPass;
use dhow_wire::ticket::Ticket;

use super::Known;
use crate::proxy::{Mesh, MeshPeer, REMOVED_MAX, RelayedPeer, TicketKey};

impl Known {
    /// This node's place among the nodes' proxies.
    pub fn mesh(&self) -> Option<Mesh> {
        let (told, place) = (self.told.as_ref()?, self.place?);
        let (mut peers, mut relayed) = (Vec::new(), Vec::new());
        for (node, way) in self.ways().filter(|(node, _)| **node != place.node) {
            match way {
                MeshWay::At(addr) => peers.push(MeshPeer { node: node.0, addr }),
                MeshWay::Through(relays) => relayed.push(RelayedPeer {
                    node: node.0,
                    relays: relays.iter().map(|relay| relay.0).collect(),
                }),
                // Of this node alone.
                MeshWay::Relay => {}
            }
        }
        let removed = told.directory.removed.iter().map(|node| node.0);
        Some(Mesh {
            node: place.node.0,
            listen: place.mesh?,
            peers,
            relayed,
            relays: self.own_relays().iter().map(|relay| relay.0).collect(),
            relay: self.relay.filter(|_| self.passes_on()),
            ticket: told.pass.ticket.as_deref().map(str::to_owned),
            ticket_key: ticket_key(&told.pass),
            removed: removed.take(REMOVED_MAX).collect(),
            believed_cas: told.pass.believed_cas.as_deref().map(str::to_owned),
        })
    }

    /// How the nodes of the directory are reached, as far as this version can read that.
    fn ways(&self) -> impl Iterator<Item = (&NodeId, MeshWay)> {
        let nodes = self.told.iter().flat_map(|told| &told.directory.nodes);
        nodes.filter_map(|(node, text)| Some((node, MeshWay::read(text)?)))
    }

    /// Through whom a node is called that nobody can dial.
    pub fn relays_of(&self, node: u64) -> Vec<NodeId> {
        let way = self.ways().find(|(found, _)| found.0 == node);
        match way {
            Some((_, MeshWay::Through(relays))) => relays,
            Some((_, MeshWay::At(_) | MeshWay::Relay)) | None => Vec::new(),
        }
    }

    fn own_relays(&self) -> Vec<NodeId> {
        self.place
            .map(|place| self.relays_of(place.node.0))
            .unwrap_or_default()
    }

    /// Whether this node passes on for others.
    pub fn passes_on(&self) -> bool {
        let own = self.place.map(|place| place.node);
        let mut ways = self.ways();
        ways.any(|(node, way)| Some(*node) == own && way == MeshWay::Relay)
    }
}

/// What proves the tickets of others: the servers' key, and the cluster that this node's own ticket names.
fn ticket_key(pass: &MeshPass) -> Option<TicketKey> {
    let own = Ticket::parse(pass.ticket.as_deref()?).ok()?;
    Some(TicketKey {
        cluster_id: own.cluster_id().to_owned(),
        public_key: pass.ticket_key?,
    })
}
