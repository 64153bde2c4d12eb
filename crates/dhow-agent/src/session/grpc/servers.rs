//! What a node knows of its servers: those that it was given, those that servers have told it of, and which of them turned
//! out to be which. In what order it tries them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_core::lease::server_weight;

use super::routes::{Endpoint, Routes};

/// Servers that a node remembers to have been told of: a cluster has seven at most.
const TOLD_MAX: usize = 32;

/// All servers that a node may go to, in its own order. A search has one.
pub(super) struct Servers {
    routes: Arc<dyn Routes>,
    /// Whose order it is: the node's id, or any number for one that has none yet.
    key: u64,
    told: Vec<Endpoint>,
    /// Which server answered at an address that the node was given; none once it was more than one.
    met: BTreeMap<String, Option<NodeId>>,
    /// Addresses at which the last attempt failed.
    failed: BTreeSet<String>,
}

impl Servers {
    pub fn new(routes: Arc<dyn Routes>, key: u64) -> Self {
        Self {
            routes,
            key,
            told: Vec::new(),
            met: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }

    /// A server answered at this address, and said who it is and which servers there are.
    pub fn met(&mut self, address: &str, server: Option<NodeId>, told: Vec<Endpoint>) {
        self.failed.remove(address);
        let given = self.routes.all();
        if let Some(server) = server
            && given.iter().any(|endpoint| endpoint.address == address)
        {
            let known = self.met.entry(address.to_owned()).or_insert(Some(server));
            if *known != Some(server) {
                *known = None;
            }
        }
        if !told.is_empty() && !self.routes.is_closed() {
            self.told = told.into_iter().take(TOLD_MAX).collect();
        }
        let known: BTreeSet<String> = self.all().into_iter().map(|endpoint| endpoint.address).collect();
        self.met.retain(|address, _| known.contains(address));
        self.failed.retain(|address| known.contains(address));
    }

    /// Nobody answered there.
    pub fn failed(&mut self, address: &str) {
        if self.all().iter().any(|endpoint| endpoint.address == address) {
            self.failed.insert(address.to_owned());
        }
    }

    /// Where a server is, as far as this node was given it.
    pub fn at(&self, server: NodeId) -> Option<Endpoint> {
        let mut all = self.all().into_iter();
        all.find(|endpoint| endpoint.node == Some(server))
    }

    /// All, with who they are where that is known: those that the node was given, then those that it was told of and that
    /// are none of them.
    pub fn all(&self) -> Vec<Endpoint> {
        let mut all = self.routes.all();
        for endpoint in &mut all {
            let told = || self.told.iter().find(|told| told.address == endpoint.address);
            let met = self.met.get(&endpoint.address).copied();
            endpoint.node = endpoint
                .node
                .or_else(|| met.unwrap_or_else(|| told().and_then(|told| told.node)));
        }
        for told in &self.told {
            let is_same =
                |endpoint: &Endpoint| endpoint.address == told.address || endpoint.node == told.node;
            if !all.iter().any(is_same) {
                all.push(told.clone());
            }
        }
        all
    }

    /// In the order in which they are tried: the best first, one that failed or was just left last. Who they are counts
    /// before where they are, so that the node comes to where its servers want it.
    pub fn ranked(&self, left: Option<&str>) -> Vec<Endpoint> {
        let mut all = self.all();
        all.sort_by_cached_key(|endpoint| {
            let server = endpoint
                .node
                .map_or_else(|| number(&endpoint.address), |node| node.0);
            (
                left == Some(endpoint.address.as_str()),
                self.failed.contains(&endpoint.address),
                endpoint.node.is_none(),
                // The node of a server belongs to that one.
                server != self.key,
                Reverse(server_weight(self.key, server)),
                endpoint.address.clone(),
            )
        });
        all
    }
}

/// A number that stands in for a server of which only its address is known (FNV-1a).
fn number(address: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    address.bytes().fold(0xCBF2_9CE4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use dhow_core::lease::best_server;

    use super::super::routes::FixedRoutes;
    use super::*;

    fn endpoint(node: u64) -> Endpoint {
        Endpoint {
            node: Some(NodeId(node)),
            address: format!("server-{node}"),
        }
    }

    fn given(addresses: &[&str], key: u64) -> Servers {
        let endpoints = addresses.iter().map(|address| Endpoint {
            node: None,
            address: (*address).to_owned(),
        });
        Servers::new(Arc::new(FixedRoutes(endpoints.collect())), key)
    }

    fn addresses(servers: &Servers, left: Option<&str>) -> Vec<String> {
        let ranked = servers.ranked(left).into_iter();
        ranked.map(|endpoint| endpoint.address).collect()
    }

    #[test]
    fn the_first_is_the_one_that_its_servers_want_it_to_have() {
        for key in 100..200 {
            let servers = Servers::new(Arc::new(FixedRoutes((1..6).map(endpoint).collect())), key);
            let best = best_server(NodeId(key), (1..6).map(NodeId));
            assert_eq!(servers.ranked(None)[0].node, best);
        }
        for own in 1..6 {
            let servers = Servers::new(Arc::new(FixedRoutes((1..6).map(endpoint).collect())), own);
            assert_eq!(servers.ranked(None)[0], endpoint(own));
        }
    }

    #[test]
    fn before_anybody_is_known_the_addresses_spread_the_nodes() {
        let mut first = BTreeMap::<String, usize>::new();
        for key in 0..300 {
            let servers = given(&["a:1", "b:1", "c:1"], key);
            *first.entry(addresses(&servers, None).remove(0)).or_default() += 1;
        }
        assert_eq!(first.len(), 3);
        assert!(first.values().all(|count| (70..130).contains(count)), "{first:?}");
    }

    #[test]
    fn servers_that_it_was_told_of_are_known_by_their_addresses() {
        let mut servers = given(&["server-1", "server-2"], 7);
        servers.met("server-1", Some(NodeId(1)), (1..4).map(endpoint).collect());
        let mut all: Vec<_> = servers.all().into_iter().map(|endpoint| endpoint.node).collect();
        all.sort();
        assert_eq!(all, [1, 2, 3].map(|id| Some(NodeId(id))), "each of them once");
        assert_eq!(servers.at(NodeId(3)), Some(endpoint(3)));
    }

    #[test]
    fn the_address_that_the_node_was_given_counts() {
        let mut servers = given(&["by-name"], 7);
        servers.met("by-name", Some(NodeId(2)), (1..4).map(endpoint).collect());
        assert_eq!(
            servers.at(NodeId(2)).map(|at| at.address).as_deref(),
            Some("by-name")
        );
        // Behind this address there are several: it is none of them, and the last to be tried.
        servers.met("by-name", Some(NodeId(3)), (1..4).map(endpoint).collect());
        assert_eq!(servers.at(NodeId(2)), Some(endpoint(2)));
        assert_eq!(
            addresses(&servers, None).last().map(String::as_str),
            Some("by-name")
        );
    }

    #[test]
    fn one_that_was_left_or_does_not_answer_is_tried_after_the_others() {
        let mut servers = Servers::new(Arc::new(FixedRoutes((1..4).map(endpoint).collect())), 7);
        let order = addresses(&servers, None);
        let [first, second, third] = [&order[0], &order[1], &order[2]];
        servers.failed(second);
        assert_eq!(
            addresses(&servers, None),
            [first, third, second].map(String::clone)
        );
        assert_eq!(
            addresses(&servers, Some(first)),
            [third, second, first].map(String::clone)
        );
        servers.met(second, Some(NodeId(9)), Vec::new());
        assert_eq!(
            addresses(&servers, None),
            order,
            "who it is stands in what the node was given"
        );
        servers.failed("elsewhere");
        assert!(servers.failed.is_empty(), "nothing is kept of others");
    }

    #[test]
    fn one_that_goes_to_no_others_learns_of_none() {
        struct Closed;
        impl Routes for Closed {
            fn all(&self) -> Vec<Endpoint> {
                vec![endpoint(1)]
            }

            fn is_closed(&self) -> bool {
                true
            }
        }
        let mut servers = Servers::new(Arc::new(Closed), 1);
        servers.met("server-1", Some(NodeId(1)), (1..4).map(endpoint).collect());
        assert_eq!(servers.all(), [endpoint(1)]);
    }
}
