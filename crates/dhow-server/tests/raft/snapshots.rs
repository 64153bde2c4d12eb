//! Snapshots: made here, sent to a member that was away for too long, and what the log keeps.

use dhow_server::net::peers::Lane;
use dhow_server::plane::log::Log;

use crate::cluster::{Cluster, until};

/// Writes, and makes a snapshot on every node, `rounds` times.
async fn write_and_compact(cluster: &Cluster, rounds: usize, tag: &str) {
    for round in 0..rounds {
        for number in 0..5 {
            cluster.write(&format!("{tag} {round} {number}")).await;
        }
        cluster.leader().await.snapshot().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_away_behind_a_purge_gets_a_snapshot() {
    let mut cluster = Cluster::calm(3).await;
    cluster.write("first").await;
    cluster.agree(&["first"]).await;
    let leader = cluster.leader().await.id;
    let away = cluster.others(leader)[0];
    let known = cluster.nodes[&away].log.status().committed_index;
    cluster.stop(away).await;
    write_and_compact(&cluster, 3, "without it").await;
    let log = &cluster.nodes[&leader].log;
    until("the log forgets what it lacks", || {
        log.status().first_index > known + 1
    })
    .await;
    let before = cluster.network.delivered(Lane::Snapshot);
    cluster.open(away).await;
    cluster.write("with it").await;
    let all = cluster.agree(&["with it"]).await;
    assert_eq!(all.len(), 17);
    assert!(cluster.network.delivered(Lane::Snapshot) > before);
    // What it got is its own from now on.
    cluster.restart(away).await;
    cluster.write("again").await;
    let again = cluster.agree(&["again"]).await;
    assert_eq!(again.len(), 18);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_away_for_a_moment_gets_entries() {
    let mut cluster = Cluster::calm(3).await;
    cluster.write("first").await;
    cluster.agree(&["first"]).await;
    let leader = cluster.leader().await.id;
    let away = cluster.others(leader)[0];
    cluster.stop(away).await;
    write_and_compact(&cluster, 1, "without it").await;
    cluster.open(away).await;
    cluster.agree(&["without it 0 4"]).await;
    assert_eq!(cluster.network.delivered(Lane::Snapshot), 0);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_begins_with_the_newest_snapshot() {
    let mut cluster = Cluster::start(3).await;
    write_and_compact(&cluster, 3, "early").await;
    cluster.write("late").await;
    cluster.agree(&["late"]).await;
    cluster.stop_all().await;
    for id in 1..=3 {
        cluster.open(id).await;
    }
    let all = cluster.agree(&["early 0 0", "late"]).await;
    assert_eq!(all.len(), 16);
    cluster.stop_all().await;
}
