//! Nodes that are lost, and come back.

use dhow_core::replica::ReplicaState;
use dhow_core::spec::NodeSelector;
use dhow_core::state::State;

use crate::cluster::Cluster;
use crate::node::{Node, service};

fn running_on(state: &State, node: &Node) -> usize {
    let there = state.replicas.values().filter(|replica| replica.node == node.id);
    there
        .filter(|replica| replica.machine.state == ReplicaState::Running)
        .count()
}

fn is_ready(state: &State, node: &Node) -> bool {
    state.node(node.id).is_some_and(|node| node.is_ready())
}

#[tokio::test]
async fn a_lost_node_keeps_what_is_its_own_and_stops_the_rest() {
    let cluster = Cluster::start(1).await;
    let (lost, other) = (
        Node::start(&cluster, 11, "a").await,
        Node::start(&cluster, 12, "b").await,
    );
    cluster
        .until("both are registered", |state| state.nodes.len() == 2)
        .await;
    let mut pinned = service(1, &[]);
    pinned.node_selector = NodeSelector {
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        ..NodeSelector::default()
    };
    cluster
        .deploy(&[("pinned", pinned), ("web", service(3, &[]))])
        .await;
    cluster
        .until("all run", |state| {
            running_on(state, &lost) == 2 && running_on(state, &other) == 2
        })
        .await;
    let starts = lost.host.starts();
    lost.relay.set_down(true);
    lost.relay.cut();
    lost.stands(|standing| standing.to_string().contains("the relay is down"))
        .await;
    while cluster.servers[0].gateway.sessions() > 1 {
        tokio::task::yield_now().await;
    }
    cluster.pass(9_500).await;
    assert!(is_ready(&cluster.state(), &lost), "the grace is not over");
    cluster.pass(1_500).await;
    cluster
        .until("it is given up", |state| !is_ready(state, &lost))
        .await;
    cluster
        .until("web is elsewhere", |state| running_on(state, &other) == 3)
        .await;
    assert_eq!(lost.runs().len(), 2, "what it has runs on");
    lost.relay.set_down(false);
    cluster
        .until("it is back", |state| {
            is_ready(state, &lost) && running_on(state, &lost) == 1
        })
        .await;
    lost.until_runs(&["shop/pinned-default-0"]).await;
    assert_eq!(lost.host.starts(), starts, "what is its own was not touched");
}

#[tokio::test]
async fn a_node_that_comes_back_within_the_grace_is_left_alone() {
    let cluster = Cluster::start(1).await;
    let (node, other) = (
        Node::start(&cluster, 11, "a").await,
        Node::start(&cluster, 12, "b").await,
    );
    cluster
        .until("both are registered", |state| state.nodes.len() == 2)
        .await;
    cluster.deploy(&[("web", service(4, &[]))]).await;
    let before = cluster
        .until("half run there", |state| running_on(state, &node) == 2)
        .await;
    for _ in 0..3 {
        node.relay.set_down(true);
        node.relay.cut();
        node.stands(|standing| standing.to_string().contains("the relay is down"))
            .await;
        cluster.pass(8_000).await;
        node.relay.set_down(false);
        node.is_open().await;
        // Its own time does not pass as the servers' does.
        cluster.servers[0].leases.renew(other.id);
    }
    cluster.pass(9_000).await;
    let after = cluster.state();
    assert!(is_ready(&after, &node) && is_ready(&after, &other));
    assert_eq!(node.host.starts(), 2);
    assert_eq!(running_on(&after, &node), running_on(&before, &node));
}

/// A link that is cut without a word: pings find it, and the last sign of life on it is what counts.
#[tokio::test]
async fn a_silent_node_is_noticed() {
    let cluster = Cluster::start(1).await;
    let node = Node::start(&cluster, 11, "a").await;
    node.is_open().await;
    node.relay.set_down(true);
    node.relay.silence();
    node.stands(|standing| standing.to_string().contains("the relay is down"))
        .await;
    while cluster.servers[0].gateway.sessions() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    cluster.pass(11_000).await;
    cluster
        .until("it is given up", |state| !is_ready(state, &node))
        .await;
}
