//! Where replicas go, by the real binary: limits that hold, what is said where they leave no place, moves, and what a
//! cluster's members know.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::{Cluster, Service, Where, by_node, spread, until};

#[test]
fn limits_hold_and_moves_are_asked_for() {
    let cluster = Cluster::raft("places", 3, Where::Loopback);
    let node = &cluster.nodes[cluster.follower()];
    let limited = |replicas| spread(replicas).with("max_per_node", json!(1));
    node.deploy("shop", &[("web", limited(3))]).ends_with(0);
    let each = BTreeMap::from([(1, 1), (2, 1), (3, 1)]);
    assert_eq!(by_node(&node.replicas()), each);
    node.dhow(&["scale", "shop/web=4"]).ends_with(0);
    until("it is said why the fourth has no place", || {
        let told = node.dhow(&["explain", "shop/web"]).ends_with(0).stdout;
        told.contains("all 3 nodes have 1 already: max_per_node 1")
            .then_some(())
    });
    node.dhow(&["rm", "shop", "--wait"]).ends_with(0);

    // Two nodes have everything of a service; the third takes its part once that is asked for.
    node.dhow(&["node", "drain", "3"]).ends_with(0);
    let quick = Service::sleeper()
        .replicas(6)
        .with("rollout", json!({ "min_healthy": "0s" }));
    node.deploy("blog", &[("web", quick)]).ends_with(0);
    node.dhow(&["node", "undrain", "3"]).ends_with(0);
    let plan = node
        .dhow(&["plan", "rebalance", "--deployment", "blog", "--json"])
        .json();
    assert_eq!(plan["moves"].as_array().unwrap().len(), 2, "{plan}");
    node.dhow(&["rebalance", "--deployment", "blog", "--wait"])
        .ends_with(0);
    until("each node has two", || {
        let blog = node.dhow(&["ps", "blog", "--json"]).json();
        let mut counts = BTreeMap::new();
        for replica in blog.as_array().unwrap() {
            *counts.entry(replica["node_id"].as_u64().unwrap()).or_insert(0) += 1;
        }
        (counts == BTreeMap::from([(1, 2), (2, 2), (3, 2)])).then_some(())
    });
    let again = node
        .dhow(&["plan", "rebalance", "--deployment", "blog"])
        .ends_with(0);
    assert!(again.stdout.contains("nothing to move"), "{}", again.stdout);

    let check = node.dhow(&["cluster", "upgrade-check"]).ends_with(0).stdout;
    assert!(
        check.contains("every server and node is of this version"),
        "{check}"
    );
    cluster.finish();
}
