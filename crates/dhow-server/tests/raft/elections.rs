//! Who leads, and what an election costs.

use dhow_server::plane::log::raft::{RaftOptions, RaftTimings};

use crate::cluster::{Cluster, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_others_go_on_when_the_leader_is_gone() {
    let mut cluster = Cluster::start(3).await;
    cluster.write("one").await;
    let old = cluster.leader().await.id;
    cluster.stop(old).await;
    cluster.write("two").await;
    cluster.open(old).await;
    let all = cluster.agree(&["one", "two"]).await;
    assert_eq!(all.len(), 2);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_nodes_survive_two_leaders() {
    let mut cluster = Cluster::start(5).await;
    for round in 0..2 {
        cluster.write(&format!("round {round}")).await;
        let old = cluster.leader().await.id;
        cluster.stop(old).await;
    }
    cluster.write("last").await;
    let all = cluster.agree(&["last"]).await;
    assert_eq!(all, ["round 0", "round 1", "last"]);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_costs_no_election() {
    // Only the one that goes away would ever want to lead.
    let away = 3;
    let mut cluster = Cluster::calm_with(3, |options| match options.node_id == away {
        true => RaftOptions {
            timings: RaftTimings::default(),
            ..options
        },
        false => options,
    })
    .await;
    cluster.write("one").await;
    cluster.agree(&["one"]).await;
    let leader = cluster.leader().await.id;
    let term = cluster.nodes[&leader].leadership().term;
    cluster.isolate(away);
    until("it hears nobody", || {
        cluster.nodes[&away].leadership().leader.is_none()
    })
    .await;
    cluster.write("without it").await;
    // A follower asks others for nothing else.
    let others = cluster.others(away).len() as u64;
    until("it has wanted to lead three times", || {
        cluster.network.lost(away) >= 3 * others
    })
    .await;
    cluster.network.heal();
    cluster.agree(&["without it"]).await;
    cluster.write("with it").await;
    cluster.agree(&["with it"]).await;
    for node in cluster.nodes.values() {
        assert_eq!(node.applied.borrow().at.term, term, "node {}", node.id);
    }
    assert_eq!(cluster.leader().await.id, leader);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_was_stopped_goes_on_where_it_was() {
    let mut cluster = Cluster::start(3).await;
    cluster.write("one").await;
    cluster.write("two").await;
    cluster.stop_all().await;
    for id in 1..=3 {
        cluster.open(id).await;
    }
    cluster.write("three").await;
    let all = cluster.agree(&["three"]).await;
    assert_eq!(all, ["one", "two", "three"]);
    cluster.stop_all().await;
}
