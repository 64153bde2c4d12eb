//! Disks that fail and bytes that are no message.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dhow_server::net::peers::PeerHandler;
use dhow_server::plane::log::ProposeError;
use dhow_server::plane::log::raft::{RaftLog, RaftOptions};
use dhow_server::plane::log::store::{Disk, DiskOp, StoreOptions};

use crate::cluster::{Cluster, PATIENCE, until};

/// The node whose disk is broken; 0 for none.
type Broken = Arc<AtomicU64>;

fn breakable(options: RaftOptions, broken: &Broken) -> RaftOptions {
    let (id, broken) = (options.node_id, Arc::clone(broken));
    let hook = move |op: DiskOp, _: &Path| match op {
        DiskOp::Sync if broken.load(Ordering::Relaxed) == id => Err(io::Error::other("the disk is broken")),
        _ => Ok(()),
    };
    RaftOptions {
        store: StoreOptions {
            disk: Disk::with_hook(Arc::new(hook)),
            ..options.store
        },
        ..options
    }
}

async fn start(broken: &Broken) -> Cluster {
    let mut cluster = Cluster::prepare(3);
    for id in 1..=3 {
        let options = breakable(cluster.options(id), broken);
        cluster.open_with(options).await;
    }
    cluster.write("before").await;
    cluster.agree(&["before"]).await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_fails_stops_and_the_others_go_on() {
    let broken = Broken::default();
    let mut cluster = start(&broken).await;
    let old = cluster.leader().await.id;
    broken.store(old, Ordering::Relaxed);
    // Where it has lost its place by now, it breaks as a follower, by what comes after.
    let outcome = cluster.nodes[&old].write("on a broken disk").await;
    let is_refused = match &outcome {
        Err(ProposeError::Unknown) => false,
        Err(ProposeError::NotLeader { .. }) => true,
        Ok(()) | Err(ProposeError::Full | ProposeError::Store(_)) => panic!("{outcome:?}"),
    };
    cluster.write_but(old, "after").await;
    until("it says so", || *cluster.nodes[&old].has_failed.borrow()).await;
    broken.store(0, Ordering::Relaxed);
    cluster.restart(old).await;
    // Where nobody was told what became of it, the others may have had it before the disk failed.
    let all = cluster.agree(&["before", "after"]).await;
    assert!(
        !(is_refused && all.iter().any(|made| made == "on a broken disk")),
        "it was refused for certain"
    );
    cluster.stop_all().await;
}

/// Entries are on the follower's disk before the leader's own has them, and are not acknowledged before it does.
///
/// There is one follower: a write is acknowledged only with its answer, so the leader knows afterwards that the follower
/// has everything, and sends ahead. Of two, one could be late with its answer and be sent nothing ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_does_not_wait_for_the_leaders_disk() {
    let held = Arc::new(AtomicU64::new(0));
    let synced: Arc<[AtomicU64; 3]> = Arc::default();
    let hooked = |options: RaftOptions| {
        let id = options.node_id;
        let (held, synced) = (Arc::clone(&held), Arc::clone(&synced));
        let hook = move |op: DiskOp, _: &Path| {
            if op == DiskOp::Sync {
                // On the store's own thread.
                while held.load(Ordering::SeqCst) == id {
                    std::thread::sleep(Duration::from_millis(1));
                }
                synced[id as usize].fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        };
        let store = StoreOptions {
            disk: Disk::with_hook(Arc::new(hook)),
            ..options.store
        };
        RaftOptions { store, ..options }
    };
    // Nobody is to be elected while the leader's disk is held.
    let mut cluster = Cluster::calm_with(2, hooked).await;
    for command in ["before", "calm"] {
        cluster.write(command).await;
    }
    cluster.agree(&["before", "calm"]).await;
    let leader = cluster.leader().await.id;
    let term = cluster.nodes[&leader].leadership().term;
    let follower = cluster.others(leader)[0];
    let count = || synced[follower as usize].load(Ordering::SeqCst);
    let earlier = count();
    held.store(leader, Ordering::SeqCst);
    let write = cluster.nodes[&leader].write("ahead");
    let release = async {
        until("the follower has it", || count() > earlier).await;
        assert_eq!(
            cluster.nodes[&leader].commands().len(),
            2,
            "it was told too early"
        );
        held.store(0, Ordering::SeqCst);
    };
    let (written, ()) = tokio::join!(write, release);
    assert!(written.is_ok(), "{written:?}");
    cluster.agree(&["before", "calm", "ahead"]).await;
    for node in cluster.nodes.values() {
        assert_eq!(node.applied.borrow().at.term, term, "another leader sent it");
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_whose_disk_fails_stops_and_is_not_missed() {
    let broken = Broken::default();
    let mut cluster = Cluster::calm_with(3, |options| breakable(options, &broken)).await;
    cluster.write("before").await;
    cluster.agree(&["before"]).await;
    let leader = cluster.leader().await.id;
    let follower = cluster.others(leader)[0];
    broken.store(follower, Ordering::Relaxed);
    cluster.write("without it").await;
    until("it says so", || *cluster.nodes[&follower].has_failed.borrow()).await;
    broken.store(0, Ordering::Relaxed);
    cluster.restart(follower).await;
    cluster.agree(&["without it"]).await;
    assert_eq!(cluster.leader().await.id, leader);
    cluster.stop_all().await;
}

/// What is written to a directory that is gone is nowhere after the next start: it counts for no majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_whose_directories_are_gone_acknowledge_nothing_and_elect_nobody() {
    let mut cluster = Cluster::prepare(3);
    let mut storages = BTreeMap::new();
    for id in 1..=3 {
        let options = cluster.options(id);
        storages.insert(id, options.storage.clone());
        cluster.open_with(options).await;
    }
    cluster.write("before").await;
    cluster.agree(&["before"]).await;
    let leader = cluster.leader().await.id;
    let gone = |is_gone: bool| {
        for storage in storages.iter().filter(|(id, _)| **id != leader) {
            storage.1.set_gone(is_gone);
        }
    };
    gone(true);
    let outcome = cluster.nodes[&leader].write("nowhere").await;
    assert!(outcome.is_err(), "{outcome:?}");
    until("nobody is sure to lead", || {
        cluster.nodes.values().all(|node| !node.leadership().is_here)
    })
    .await;
    gone(false);
    cluster.write("after").await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_dropped_ends_all_that_it_began() {
    let cluster = Cluster::prepare(1);
    for _ in 0..2 {
        let opened = RaftLog::open(cluster.options(1)).await.unwrap();
        let mut leaderships = opened.log.leaderships();
        leaderships.wait_for(|now| now.is_here).await.unwrap();
        drop(opened);
        // The other end goes with the last task.
        let ended = async { while leaderships.changed().await.is_ok() {} };
        tokio::time::timeout(PATIENCE, ended).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_message_are_refused_and_nothing_else_happens() {
    let mut cluster = Cluster::calm(3).await;
    cluster.write("one").await;
    let node = cluster.leader().await;
    for garbage in [
        &b""[..],
        b"\x00",
        b"\x01",
        b"\x01\xff\xff\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let answer = node.log.answer(2, Bytes::from_static(garbage)).await;
        assert!(!answer.is_empty());
    }
    cluster.write("two").await;
    cluster.agree(&["one", "two"]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_proposal_goes_alone_and_the_next_size_is_refused() {
    let mut cluster = Cluster::calm(3).await;
    let leader = cluster.leader().await;
    // Records of this cluster's stores hold 64 KiB.
    let large = Bytes::from(vec![7; 64 * 1024 - 64 - 5]);
    let many = (0..20).map(|_| leader.propose(vec![large.clone()]));
    for outcome in futures_util::future::join_all(many).await {
        outcome.unwrap();
    }
    let small = (0..1_000).map(|_| leader.propose(vec![Bytes::new(); 100]));
    for outcome in futures_util::future::join_all(small).await {
        outcome.unwrap();
    }
    let too_large = leader.propose(vec![large, Bytes::new()]).await;
    assert!(matches!(too_large, Err(ProposeError::Store(_))), "{too_large:?}");
    until("everybody has them", || {
        cluster
            .nodes
            .values()
            .all(|node| node.commands().len() == 100_020)
    })
    .await;
    cluster.stop_all().await;
}
