//! Every server holds sessions, whoever leads.

use std::sync::Arc;
use std::time::Duration;

use dhow_agent::session::grpc::{Endpoint, FixedRoutes, GrpcOptions};
use dhow_core::ids::NodeId;
use dhow_core::lease::best_server;
use dhow_core::replica::ReplicaState;
use dhow_core::state::State;
use dhow_server::net::identity::Identity;
use dhow_wire::grpc::proto::{HeldReports, HolderBeat, OpenRequest};
use dhow_wire::grpc::{Holders, Refusal};

use crate::cluster::Cluster;
use crate::near_door::{as_identity, as_member};
use crate::node::{Node, options, service};
use crate::relay::Relay;

fn running(state: &State) -> usize {
    let replicas = state.replicas.values();
    replicas
        .filter(|replica| replica.machine.state == ReplicaState::Running)
        .count()
}

/// The ids of nodes that belong to this server.
pub fn of_server(cluster: &Cluster, at: usize) -> impl Iterator<Item = u64> {
    let servers: Vec<NodeId> = cluster.servers.iter().map(|server| NodeId(server.id)).collect();
    let own = servers[at];
    (11..).filter(move |id| best_server(NodeId(*id), servers.iter().copied()) == Some(own))
}

/// A node that was given one server alone.
pub async fn node_of(cluster: &Cluster, id: u64, at: usize) -> Node {
    let relay = Relay::of(NodeId(id));
    let server = &cluster.servers[at];
    let only = FixedRoutes(vec![Endpoint {
        node: Some(NodeId(server.id)),
        address: server.addr.to_string(),
    }]);
    let options = GrpcOptions {
        routes: Arc::new(only),
        ..options(cluster, id, "a", &relay)
    };
    Node::start_with(id, relay, options).await
}

#[tokio::test]
async fn sessions_stay_where_they_are_when_another_server_leads() {
    let cluster = Cluster::start_holding(3).await;
    let mut nodes = Vec::new();
    for at in [0, 1, 2] {
        for id in of_server(&cluster, at).take(2) {
            nodes.push(node_of(&cluster, id, at).await);
        }
    }
    for node in &nodes {
        node.is_open().await;
    }
    for server in &cluster.servers {
        assert_eq!(server.gateway.sessions(), 2, "server {}", server.id);
    }
    cluster.deploy(&[("web", service(12, &[]))]).await;
    cluster.until("all run", |state| running(state) == 12).await;
    let made: usize = nodes.iter().map(|node| node.relay.made()).sum();
    for (round, leader) in [(1, 2), (2, 3)] {
        cluster.log.elect(Some(leader));
        cluster.led_by(leader as usize - 1).await;
        let replicas = 12 + 6 * round;
        cluster.deploy(&[("web", service(replicas, &[]))]).await;
        let replicas = replicas as usize;
        cluster
            .until("more run", |state| running(state) == replicas)
            .await;
    }
    let made_since = nodes.iter().map(|node| node.relay.made()).sum::<usize>() - made;
    assert_eq!(made_since, 0, "no session was opened anew");
    let starts: u64 = nodes.iter().map(|node| node.host.starts()).sum();
    assert_eq!(starts, 24, "nothing was started twice");
}

#[tokio::test]
async fn a_session_that_breaks_elsewhere_is_evidence_for_the_leader() {
    let cluster = Cluster::start_holding(2).await;
    let id = of_server(&cluster, 1).next().unwrap();
    let node = node_of(&cluster, id, 1).await;
    node.is_open().await;
    let leases = &cluster.servers[0].leases;
    node.relay.set_down(true);
    node.relay.cut();
    let lost = cluster.until("it is given up", |state| {
        state.node(node.id).is_some_and(|node| !node.is_ready())
    });
    lost.await;
    assert_eq!(leases.deadline_ms(node.id), None);
    node.relay.set_down(false);
    node.is_open().await;
    cluster
        .until("it is back", |state| {
            state.node(node.id).is_some_and(|node| node.is_ready())
        })
        .await;
}

#[tokio::test]
async fn only_members_are_answered_and_only_by_the_leader() {
    let cluster = Cluster::start_holding(2).await;
    let (leader, follower) = (&cluster.servers[0].gateway, &cluster.servers[1].gateway);
    for identity in [Identity::Worker(NodeId(2)), Identity::Member(NodeId(9))] {
        let refused = leader.beat(as_identity(identity, HolderBeat::default())).await;
        let refused = Refusal::from_status(&refused.unwrap_err());
        assert!(matches!(refused, Some(Refusal::Identity(_))), "{refused:?}");
        let refused = leader.open(as_identity(identity, OpenRequest::default())).await;
        assert!(refused.is_err());
        let refused = leader.report(as_identity(identity, HeldReports::default())).await;
        assert!(refused.is_err());
    }
    let refused = follower.beat(as_member(NodeId(1), HolderBeat::default())).await;
    let refused = Refusal::from_status(&refused.unwrap_err());
    assert!(matches!(refused, Some(Refusal::NotLeader { .. })), "{refused:?}");
    let answered = leader.beat(as_member(NodeId(2), HolderBeat::default()));
    let answered = tokio::time::timeout(Duration::from_secs(60), answered).await;
    answered.expect("the leader answers").unwrap();
}
