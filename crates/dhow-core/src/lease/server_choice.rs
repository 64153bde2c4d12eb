//! Which server a node has its session with: of all that there are, the one with the highest weight for this node. The node
//! that a server runs on belongs to that server.
//!
//! Nodes and holders work it out alike and keep no table of it. When a server goes, only its own nodes go elsewhere, spread
//! over all the others; when it is back, the same nodes belong to it again. The weights must never change: servers and nodes
//! of different versions would send each other round in circles.

use super::report_delay::mixed;
use crate::ids::NodeId;

/// The weight of a server for a node. A server whose id is not known stands in with any number of its own.
pub fn server_weight(node: u64, server: u64) -> u64 {
    mixed(mixed(node).wrapping_add(mixed(!server)))
}

/// The server that a node belongs to: the node of a server to that one, whatever the weights are.
pub fn best_server(node: NodeId, servers: impl IntoIterator<Item = NodeId>) -> Option<NodeId> {
    let weight = |server: &NodeId| (*server == node, server_weight(node.0, server.0), *server);
    servers.into_iter().max_by_key(weight)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn shares(first_node: u64, servers: &[NodeId]) -> BTreeMap<NodeId, usize> {
        let mut shares = BTreeMap::new();
        for node in first_node..first_node + 10_000 {
            let best = best_server(NodeId(node), servers.iter().copied()).unwrap();
            *shares.entry(best).or_default() += 1;
        }
        shares
    }

    #[test]
    fn ten_thousand_nodes_are_spread_evenly() {
        for first_node in [1, 4, 1_000_000, u64::MAX - 10_000] {
            for ids in [
                &[1, 2, 3][..],
                &[1, 2, 3, 4, 5],
                &[7, 1_000, 4_000_000],
                &[11, 12, 13, 90, 91],
            ] {
                let servers: Vec<NodeId> = ids.iter().copied().map(NodeId).collect();
                let shares = shares(first_node, &servers);
                let even = 10_000 / servers.len();
                for server in servers {
                    let share = shares.get(&server).copied().unwrap_or(0);
                    assert!(
                        (even * 8 / 10..=even * 12 / 10).contains(&share),
                        "{server} of {ids:?} has {share} nodes from {first_node} on"
                    );
                }
            }
        }
    }

    #[test]
    fn the_node_of_a_server_belongs_to_it() {
        let servers = [NodeId(1), NodeId(2), NodeId(3)];
        assert_eq!(
            servers.map(|server| best_server(server, servers)),
            servers.map(Some)
        );
        assert_eq!(best_server(NodeId(1), []), None);
    }

    #[test]
    fn the_weights_are_what_they_always_were() {
        assert_eq!(
            [
                server_weight(1, 1),
                server_weight(1, 2),
                server_weight(10_000, 3),
                server_weight(u64::MAX, 0)
            ],
            [
                5_928_941_433_293_098_129,
                11_879_304_180_004_130_396,
                1_290_003_469_184_881_578,
                15_435_364_473_383_169_046
            ]
        );
    }

    proptest! {
        #[test]
        fn a_server_that_goes_moves_its_own_nodes_alone(
            node in any::<u64>(),
            servers in prop::collection::btree_set(any::<u64>().prop_map(NodeId), 1..8),
        ) {
            let best = best_server(NodeId(node), servers.iter().copied()).unwrap();
            prop_assert!(servers.contains(&best));
            for gone in &servers {
                let left = servers.iter().copied().filter(|server| server != gone);
                let now = best_server(NodeId(node), left);
                if *gone == best {
                    prop_assert_ne!(now, Some(best));
                } else {
                    prop_assert_eq!(now, Some(best));
                }
            }
        }

        #[test]
        fn the_order_in_which_servers_are_known_says_nothing(
            node in any::<u64>(),
            servers in prop::collection::vec(any::<u64>().prop_map(NodeId), 1..8),
        ) {
            let backwards = servers.iter().rev().copied();
            prop_assert_eq!(
                best_server(NodeId(node), servers.iter().copied()),
                best_server(NodeId(node), backwards)
            );
        }
    }
}
