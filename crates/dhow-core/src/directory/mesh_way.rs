//! Which way the proxy of a node is reached by those of others: at an address of its own, or through servers that pass its
//! bytes on, where nobody can dial it.
//!
//! A node says the first with its address and the second with a word in its place ([`REVERSE`]); a directory names the
//! servers. Older nodes read addresses alone and leave the rest out: they do not call such a node.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::ids::NodeId;
use crate::lease::server_weight;

/// What a node says in the place of its proxy's address where no other node can dial it.
pub const REVERSE: &str = "reverse";

/// Servers that pass on for one node: where one dies the other has the node's tunnel already.
pub const RELAYS_MAX: usize = 2;

const RELAY: &str = "relay";
const THROUGH: &str = "through ";

/// One node of a directory, as it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeshWay {
    At(SocketAddr),
    /// Through these servers, the first before the others.
    Through(Vec<NodeId>),
    /// Of the node itself that is told: it passes on for others.
    Relay,
}

impl MeshWay {
    /// What stands in a directory; `None` for what a newer version means.
    pub fn read(text: &str) -> Option<Self> {
        if let Some(named) = text.strip_prefix(THROUGH) {
            let relays: Result<Vec<_>, _> = named.split(',').map(str::parse).collect();
            let relays: Vec<_> = relays.ok()?.into_iter().map(NodeId).collect();
            return (relays.len() <= RELAYS_MAX).then_some(Self::Through(relays));
        }
        if text == RELAY {
            return Some(Self::Relay);
        }
        text.parse().ok().map(Self::At)
    }
}

impl fmt::Display for MeshWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(addr) => write!(f, "{addr}"),
            Self::Relay => f.write_str(RELAY),
            Self::Through(relays) => {
                let relays: Vec<_> = relays.iter().map(|relay| relay.0.to_string()).collect();
                write!(f, "{THROUGH}{}", relays.join(","))
            }
        }
    }
}

/// The servers that pass on for a node: those with the highest weights, the first of which is the one that the node has its
/// session with while all are there. One that goes changes nothing for nodes of others.
pub(super) fn relays_for(node: NodeId, servers: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
    let mut ranked: Vec<_> = servers.into_iter().filter(|server| *server != node).collect();
    ranked.sort_by_key(|server| std::cmp::Reverse((server_weight(node.0, server.0), *server)));
    ranked.truncate(RELAYS_MAX);
    ranked
}

/// As a directory has it; `None` where no server can pass on.
pub(super) fn through(relays: Vec<NodeId>) -> Option<Arc<str>> {
    let is_some = !relays.is_empty();
    is_some.then(|| MeshWay::Through(relays).to_string().into())
}

pub(super) fn relay() -> Arc<str> {
    MeshWay::Relay.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::best_server;

    #[test]
    fn what_is_written_is_read() {
        let ways = [
            MeshWay::At(([10, 0, 0, 1], 3672).into()),
            MeshWay::Through(vec![NodeId(3), NodeId(1)]),
            MeshWay::Relay,
        ];
        for way in ways {
            assert_eq!(MeshWay::read(&way.to_string()), Some(way));
        }
        for odd in ["", REVERSE, "through ", "through 1,2,3", "through x", "10.0.0.1"] {
            assert_eq!(MeshWay::read(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn the_first_is_the_one_that_the_node_belongs_to() {
        let servers = [1, 2, 3, 4, 5].map(NodeId);
        for node in (10..200).map(NodeId) {
            let relays = relays_for(node, servers);
            assert_eq!(relays.len(), RELAYS_MAX);
            assert_eq!(relays.first().copied(), best_server(node, servers));
            // One that goes hands its place to the next.
            let left = servers
                .into_iter()
                .filter(|server| Some(server) != relays.first());
            assert_eq!(relays_for(node, left).first(), relays.get(1));
        }
        assert!(relays_for(NodeId(1), [NodeId(1)]).is_empty());
    }
}
