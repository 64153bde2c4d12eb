//! Sessions are spread over the servers, and are again after one of them was gone.

use dhow_agent::session::grpc::SessionStanding;
use dhow_core::ids::NodeId;
use dhow_core::lease::best_server;
use dhow_core::replica::ReplicaState;
use dhow_core::state::State;

use crate::cluster::Cluster;
use crate::holders::{node_of, of_server};
use crate::node::{Node, service};

fn running(state: &State) -> usize {
    let replicas = state.replicas.values();
    replicas
        .filter(|replica| replica.machine.state == ReplicaState::Running)
        .count()
}

/// Waits until each node has its session with the best one of these servers.
async fn all_are_home(cluster: &Cluster, nodes: &[Node], servers: &[u64]) {
    for node in nodes {
        let best = best_server(node.id, servers.iter().copied().map(NodeId)).unwrap();
        let home = cluster.servers[best.0 as usize - 1].addr.to_string();
        node.stands(|standing| matches!(standing, SessionStanding::Open { address, .. } if *address == home))
            .await;
    }
}

fn made(nodes: &[Node]) -> Vec<usize> {
    nodes.iter().map(|node| node.relay.made()).collect()
}

#[tokio::test]
async fn a_server_that_comes_back_gets_its_nodes_back() {
    let mut cluster = Cluster::start_holding(3).await;
    let mut nodes = Vec::new();
    for id in 11..23 {
        nodes.push(Node::start(&cluster, id, "a").await);
    }
    all_are_home(&cluster, &nodes, &[1, 2, 3]).await;
    assert!(cluster.servers.iter().all(|server| server.gateway.sessions() > 0));
    cluster.deploy(&[("web", service(12, &[]))]).await;
    cluster.until("all run", |state| running(state) == 12).await;

    let before = made(&nodes);
    let lost = cluster.servers[2].gateway.sessions();
    cluster.servers[2].close_door();
    all_are_home(&cluster, &nodes, &[1, 2]).await;
    let elsewhere = made(&nodes).into_iter().zip(before);
    let went = elsewhere.filter(|(now, before)| now > before).count();
    assert_eq!(went, lost, "only its own nodes went elsewhere");
    cluster.deploy(&[("web", service(18, &[]))]).await;
    cluster.until("more run", |state| running(state) == 18).await;

    cluster.servers[2].open_door();
    let mut replicas = 18;
    while cluster.servers[2].gateway.sessions() < lost {
        // Nodes are told their work and report while they move.
        replicas += 1;
        cluster.deploy(&[("web", service(replicas, &[]))]).await;
        let wanted = replicas as usize;
        cluster
            .until("one more runs", |state| running(state) == wanted)
            .await;
    }
    all_are_home(&cluster, &nodes, &[1, 2, 3]).await;
    let state = cluster.state();
    assert!(
        nodes
            .iter()
            .all(|node| state.node(node.id).is_some_and(|node| node.is_ready()))
    );
    let starts: u64 = nodes.iter().map(|node| node.host.starts()).sum();
    assert_eq!(starts, u64::from(replicas), "nothing was started twice");
}

#[tokio::test]
async fn a_node_that_came_to_another_server_is_sent_to_its_own() {
    let cluster = Cluster::start_holding(2).await;
    let id = of_server(&cluster, 1).next().unwrap();
    let node = node_of(&cluster, id, 0).await;
    let home = cluster.servers[1].addr.to_string();
    node.stands(|standing| matches!(standing, SessionStanding::Open { address, .. } if *address == home))
        .await;
    // It knows of that server now, whatever it was given, and stays there.
    cluster.deploy(&[("web", service(3, &[]))]).await;
    cluster.until("all run", |state| running(state) == 3).await;
    assert_eq!(node.host.starts(), 3);
    assert_eq!(node.relay.made(), 2);
}
