//! Who leads, and what an election costs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dhow_server::plane::log::raft::{RaftOptions, RaftTimings};
use dhow_server::plane::log::store::{Disk, DiskOp, StoreOptions};

use crate::cluster::{Cluster, PATIENCE, until};

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

/// How long the disk of each of three servers takes to make something durable.
type DisksMs = [u64; 3];

/// Votes come later than on quick disks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_whose_disks_take_a_tenth_of_a_second_elect_a_leader() {
    elect_on([100; 3]).await.stop_all().await;
}

/// An election takes longer than a server with a quick disk waits before it stands again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_whose_disks_take_a_quarter_of_a_second_elect_a_leader() {
    elect_on([250; 3]).await.stop_all().await;
}

/// Two writes take longer than the lease of a leader on a quick disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_whose_disks_take_half_a_second_elect_a_leader() {
    let disks = [500; 3];
    let mut cluster = elect_on(disks).await;
    // One that starts again as a whole has measured no disk before it elects somebody.
    cluster.stop_all().await;
    open_on(&mut cluster, disks).await;
    write_in_one_term(&cluster, "again").await;
    cluster.stop_all().await;
}

/// The first does not know from its own disk how long it has to wait for the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quick_disk_among_slow_ones_ends_no_election_of_theirs() {
    elect_on([0, 500, 500]).await.stop_all().await;
}

/// A new cluster elects somebody, who stays, and again when the first leader is gone.
async fn elect_on(disks: DisksMs) -> Cluster {
    let mut cluster = Cluster::prepare(3);
    open_on(&mut cluster, disks).await;
    write_in_one_term(&cluster, "new").await;
    let old = cluster.leader().await.id;
    cluster.stop(old).await;
    write_in_one_term(&cluster, "without it").await;
    cluster
}

async fn open_on(cluster: &mut Cluster, disks: DisksMs) {
    for (id, ms) in (1..).zip(disks) {
        let options = cluster.options(id);
        let hook = move |op: DiskOp, _: &Path| {
            if op == DiskOp::Sync {
                // On the store's own thread.
                std::thread::sleep(Duration::from_millis(ms));
            }
            Ok(())
        };
        let store = StoreOptions {
            disk: Disk::with_hook(Arc::new(hook)),
            ..options.store
        };
        cluster.open_with(RaftOptions { store, ..options }).await;
    }
}

/// Writes until one leader has taken three writes in a row without being deposed or unsure in between.
async fn write_in_one_term(cluster: &Cluster, what: &str) {
    let written = tokio::time::timeout(PATIENCE, async {
        let mut in_row = 0;
        let mut term = 0;
        for number in 0.. {
            let leader = cluster.leader().await;
            let now = leader.leadership().term;
            let taken = leader.write(&format!("{what} {number}")).await;
            let is_same = taken.is_ok() && leader.leadership().is_here && now == leader.leadership().term;
            in_row = match is_same {
                true if now == term => in_row + 1,
                true => 1,
                false => 0,
            };
            term = now;
            if in_row == 3 {
                return;
            }
        }
    });
    written
        .await
        .unwrap_or_else(|_| panic!("nobody led for three writes: {what}"));
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
