//! Who leads, and what an election costs.

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
    let mut cluster = Cluster::start(3).await;
    cluster.write("one").await;
    cluster.agree(&["one"]).await;
    let leader = cluster.leader().await.id;
    let term = cluster.nodes[&leader].leadership().term;
    let away = cluster.others(leader)[0];
    cluster.isolate(away);
    // Long enough to have wanted an election several times: it says itself when it hears nobody.
    until("it hears nobody", || {
        cluster.nodes[&away].leadership().leader.is_none()
    })
    .await;
    for number in 0..10 {
        cluster.write(&format!("without it {number}")).await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    cluster.network.heal();
    cluster.agree(&["without it 9"]).await;
    for node in cluster.nodes.values() {
        assert_eq!(node.leadership().term, term, "node {}", node.id);
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
