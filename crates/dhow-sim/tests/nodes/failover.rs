//! The leader changes.

use dhow_agent::session::grpc::SessionStanding;
use dhow_core::replica::ReplicaState;
use dhow_core::state::State;

use crate::cluster::Cluster;
use crate::node::{Node, service};

fn running(state: &State) -> usize {
    let running = |state| state == ReplicaState::Running;
    state
        .replicas
        .values()
        .filter(|replica| running(replica.machine.state))
        .count()
}

async fn is_with(node: &Node, address: String) {
    let wanted = |standing: &SessionStanding| matches!(standing, SessionStanding::Open { address: at, .. } if *at == address);
    node.stands(wanted).await;
}

#[tokio::test]
async fn nodes_find_the_leader_and_follow_it() {
    let cluster = Cluster::start(3).await;
    let nodes = [
        Node::start(&cluster, 11, "a").await,
        Node::start(&cluster, 12, "b").await,
    ];
    cluster
        .until("both are registered", |state| state.nodes.len() == 2)
        .await;
    cluster.deploy(&[("web", service(4, &[]))]).await;
    cluster.until("all run", |state| running(state) == 4).await;
    for (round, leader) in [(1, 2), (2, 3), (3, 1)] {
        cluster.log.elect(Some(leader));
        let at = leader as usize - 1;
        cluster.led_by(at).await;
        for node in &nodes {
            is_with(node, cluster.servers[at].addr.to_string()).await;
        }
        let replicas = 4 + round;
        cluster.deploy(&[("web", service(replicas, &[]))]).await;
        cluster
            .until("more run", |state| running(state) == replicas as usize)
            .await;
    }
    let starts: u64 = nodes.iter().map(|node| node.host.starts()).sum();
    assert_eq!(starts, 7, "nothing was started twice");
    assert_eq!(cluster.servers[1].gateway.sessions(), 0);
    assert!(
        cluster.servers[1].leases.is_empty(),
        "one that leads no more keeps no leases"
    );
}

#[tokio::test]
async fn an_old_leader_that_is_gone_is_given_up_and_nobody_else_is() {
    let cluster = Cluster::start(2).await;
    let nodes = [
        Node::start(&cluster, 11, "a").await,
        Node::start(&cluster, 12, "b").await,
    ];
    cluster
        .until("both are registered", |state| state.nodes.len() == 2)
        .await;
    // The second node never finds the new leader.
    nodes[1].relay.set_down(true);
    cluster.log.elect(Some(2));
    cluster.led_by(1).await;
    is_with(&nodes[0], cluster.servers[1].addr.to_string()).await;
    let ready = |state: &State| state.nodes.values().filter(|node| node.is_ready()).count();
    for _ in 0..4 {
        cluster.pass(5_000).await;
        // The first one lives: its own time does not pass as the servers' does.
        cluster.servers[1].leases.renew(nodes[0].id);
    }
    assert_eq!(ready(&cluster.state()), 2, "a new leader waits");
    for _ in 0..60 {
        cluster.pass(5_000).await;
        cluster.servers[1].leases.renew(nodes[0].id);
    }
    cluster.until("it is given up", |state| ready(state) == 1).await;
    assert!(cluster.state().node(nodes[0].id).unwrap().is_ready());
}

#[tokio::test]
async fn without_a_leader_calls_wait_for_one() {
    let cluster = Cluster::start(2).await;
    let node = Node::start(&cluster, 11, "a").await;
    cluster.deploy(&[("web", service(1, &[]))]).await;
    cluster.until("it runs", |state| running(state) == 1).await;
    cluster.log.elect(None);
    node.stands(|standing| standing.to_string().contains("no leader at the moment"))
        .await;
    let ended = node.host.names()[0].clone();
    node.host.end(&ended, dhow_driver::driver::Exit::code(7));
    cluster.log.elect(Some(2));
    cluster.led_by(1).await;
    let restarted = |state: &State| {
        state
            .replicas
            .values()
            .any(|replica| replica.machine.restarts == 1)
    };
    cluster.until("its end is told", restarted).await;
}
