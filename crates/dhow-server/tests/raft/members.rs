//! Who belongs to the cluster, hand-over, first starts, lost directories.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use dhow_server::plane::log::ProposeError;
use dhow_server::plane::log::raft::{
    Admission, MemberError, OfflineRaft, RaftOpenError, SeedTerms, TransferError, seed,
};

use crate::cluster::{Cluster, addrs, store_options, until};
use crate::node::{Node, dir_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_and_go() {
    let mut cluster = Cluster::calm(3).await;
    cluster.write("three").await;
    cluster.open(4).await;
    let leader = cluster.leader().await;
    leader.log.add(4, addrs(4)).await.unwrap();
    cluster.write("four").await;
    cluster.agree(&["three", "four"]).await;
    let leader = cluster.leader().await;
    assert_eq!(
        leader
            .log
            .members()
            .iter()
            .filter(|member| member.is_voter)
            .count(),
        4
    );
    assert_eq!(
        leader.log.add(4, addrs(4)).await,
        Err(MemberError::Known { id: 4 })
    );
    assert_eq!(
        leader.log.remove(9, false).await,
        Err(MemberError::Unknown { id: 9 })
    );
    let gone = cluster.others(leader.id)[0];
    leader.log.remove(gone, false).await.unwrap();
    cluster.write("without").await;
    assert!(
        cluster
            .leader()
            .await
            .log
            .members()
            .iter()
            .all(|member| member.id != gone)
    );
    cluster.stop(gone).await;
    cluster.agree(&["without"]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_can_be_removed_and_another_goes_on() {
    let mut cluster = Cluster::start(3).await;
    cluster.write("one").await;
    cluster.agree(&["one"]).await;
    let old = loop {
        let leader = cluster.leader().await;
        match leader.log.remove(leader.id, false).await {
            Ok(()) => break leader.id,
            // It did not lead any more when it was asked.
            Err(MemberError::NotLeader { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    cluster.write_but(old, "two").await;
    cluster.stop(old).await;
    cluster.agree(&["one", "two"]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_leave_no_majority_is_refused() {
    let mut cluster = Cluster::calm(3).await;
    cluster.write("one").await;
    let leader = cluster.leader().await.id;
    let others = cluster.others(leader);
    cluster.stop(others[0]).await;
    let refused = cluster.nodes[&leader].log.remove(others[1], false).await;
    assert!(
        matches!(
            refused,
            Err(MemberError::NoQuorum {
                reachable: 1,
                voters: 2,
                ..
            })
        ),
        "{refused:?}"
    );
    cluster.nodes[&leader].log.remove(others[0], false).await.unwrap();
    let follower = cluster.nodes[&others[1]].log.remove(leader, false).await;
    assert!(
        matches!(follower, Err(MemberError::NotLeader { .. })),
        "{follower:?}"
    );
    cluster.stop_all().await;

    let mut single = Cluster::start(1).await;
    let refused = single.leader().await.log.remove(1, true).await;
    assert_eq!(refused, Err(MemberError::LastVoter { id: 1 }));
    single.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_emptied_is_refused_under_its_old_id() {
    let mut cluster = Cluster::calm(3).await;
    cluster.write("one").await;
    cluster.agree(&["one"]).await;
    let leader = cluster.leader().await.id;
    let emptied = cluster.others(leader)[0];
    cluster.stop(emptied).await;
    std::fs::remove_dir_all(dir_of(cluster.dir.path(), emptied)).unwrap();
    cluster.open(emptied).await;
    let mut admissions = cluster.nodes[&emptied].log.admissions();
    let waited = admissions.wait_for(|admission| matches!(admission, Admission::Refused { .. }));
    let refused = tokio::time::timeout(crate::cluster::PATIENCE, waited)
        .await
        .unwrap()
        .unwrap()
        .clone();
    let advice = refused.advice(emptied).unwrap();
    assert!(advice.contains("new id"), "{advice}");
    let Admission::Refused { by } = refused else {
        unreachable!()
    };
    assert!(
        cluster.nodes[&by].log.is_stranger(emptied),
        "who refused it says so"
    );
    assert!(!cluster.nodes[&by].log.is_stranger(leader));
    cluster.write("two").await;
    assert_eq!(
        cluster.nodes[&emptied].commands(),
        Vec::<Bytes>::new(),
        "it gets nothing"
    );
    // Removed and added under a new id it is welcome.
    cluster.stop(emptied).await;
    cluster.leader().await.log.remove(emptied, false).await.unwrap();
    cluster.open(7).await;
    cluster.leader().await.log.add(7, addrs(7)).await.unwrap();
    cluster.agree(&["one", "two"]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_was_emptied_does_not_begin_anew_beside_the_rest() {
    let mut cluster = Cluster::start(3).await;
    cluster.write("one").await;
    cluster.agree(&["one"]).await;
    for id in [1, 2] {
        cluster.stop(id).await;
        std::fs::remove_dir_all(dir_of(cluster.dir.path(), id)).unwrap();
    }
    for id in [1, 2] {
        cluster.open(id).await;
    }
    until("both are refused", || {
        [1, 2].iter().all(|id| {
            let admission = cluster.nodes[id].log.admissions().borrow().clone();
            admission == Admission::Refused { by: 3 }
        })
    })
    .await;
    for id in [1, 2] {
        assert_eq!(cluster.nodes[&id].log.members(), [], "node {id}");
    }
    assert_eq!(cluster.nodes[&3].commands(), ["one"], "nothing is lost");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_new_node_that_answers_is_added() {
    let mut cluster = Cluster::calm(3).await;
    cluster.write("one").await;
    cluster.agree(&["one"]).await;
    let leader = cluster.leader().await.id;
    let nobody = cluster.nodes[&leader].log.add_learner(4, addrs(4)).await;
    assert!(
        matches!(nobody, Err(MemberError::Unreachable { id: 4, .. })),
        "{nobody:?}"
    );
    // One that was a cluster of its own.
    let mut alone = cluster.options(4);
    alone.peers = BTreeMap::from([(4, addrs(4))]);
    cluster.open_with(alone).await;
    until("it leads itself", || cluster.nodes[&4].leadership().is_here).await;
    let refused = cluster.nodes[&leader].log.add_learner(4, addrs(4)).await;
    assert_eq!(refused, Err(MemberError::NotNew { id: 4 }));
    cluster.stop(4).await;
    // One that was a member before may come back under its id once it is empty.
    let gone = cluster.others(leader)[0];
    cluster.nodes[&leader].log.remove(gone, false).await.unwrap();
    let refused = cluster.nodes[&leader].log.add_learner(gone, addrs(gone)).await;
    assert_eq!(refused, Err(MemberError::NotNew { id: gone }));
    cluster.stop(gone).await;
    std::fs::remove_dir_all(dir_of(cluster.dir.path(), gone)).unwrap();
    cluster.open(gone).await;
    cluster.nodes[&leader].log.add(gone, addrs(gone)).await.unwrap();
    cluster.write("two").await;
    cluster.agree(&["one", "two"]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_belongs_to_one_node_id() {
    let mut cluster = Cluster::start(1).await;
    cluster.stop(1).await;
    let mut options = cluster.options(2);
    options.dir = dir_of(cluster.dir.path(), 1);
    let refused = Node::open(options).await;
    assert!(matches!(
        refused,
        Err(RaftOpenError::AnotherNode {
            found: 1,
            wanted: 2,
            ..
        })
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_begins_when_a_majority_is_there_and_not_before() {
    let mut cluster = Cluster::prepare(3);
    cluster.open(2).await;
    let alone = &cluster.nodes[&2];
    let asked = tokio::time::timeout(std::time::Duration::from_millis(800), async {
        alone
            .log
            .leaderships()
            .wait_for(|now| now.is_here)
            .await
            .map(|now| *now)
    });
    assert!(asked.await.is_err(), "one of three begins nothing");
    assert_eq!(*alone.log.admissions().borrow(), Admission::Joining);
    cluster.open(3).await;
    cluster.write("two of three").await;
    cluster.open(1).await;
    cluster.agree(&["two of three"]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_handed_over_under_load_and_nothing_is_told_wrongly() {
    let mut cluster = Cluster::calm(3).await;
    cluster.write("warm").await;
    cluster.agree(&["warm"]).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let cluster_ref = &cluster;
    let writers = (0..8).map(|writer| {
        let is_over = Arc::clone(&is_over);
        async move {
            let (mut taken, mut refused, mut number) = (Vec::new(), Vec::new(), 0);
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                let command = format!("{writer}-{number}");
                match cluster_ref.leader().await.write(&command).await {
                    Ok(()) => taken.push(command),
                    Err(ProposeError::NotLeader { .. } | ProposeError::Full) => refused.push(command),
                    Err(ProposeError::Unknown | ProposeError::Store(_)) => {}
                }
            }
            (taken, refused)
        }
    });
    let hand_overs = async {
        for _ in 0..3 {
            let old = cluster.leader().await;
            let term = old.leadership().term;
            let new = old.log.transfer(None).await.unwrap();
            assert_ne!(new, old.id);
            let new = cluster.leader_but(old.id).await;
            assert_eq!(new.leadership().term, term + 1, "one election, by plan");
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let (outcomes, ()) = tokio::join!(futures_util::future::join_all(writers), hand_overs);
    let all = cluster.agree(&["warm"]).await;
    let count = |command: &String| {
        all.iter()
            .filter(|applied| *applied == command.as_bytes())
            .count()
    };
    for (taken, refused) in &outcomes {
        assert!(!taken.is_empty());
        for command in taken {
            assert_eq!(count(command), 1, "{command} was acknowledged");
        }
        for command in refused {
            assert_eq!(count(command), 0, "{command} was refused for certain");
        }
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_goes_only_to_a_voter_and_only_from_the_leader() {
    let mut cluster = Cluster::calm(3).await;
    cluster.write("one").await;
    cluster.agree(&["one"]).await;
    let leader = cluster.leader().await;
    assert_eq!(
        leader.log.transfer(Some(9)).await,
        Err(TransferError::NoVoter { id: 9 })
    );
    let other = cluster.others(leader.id)[0];
    let refused = cluster.nodes[&other].log.transfer(None).await;
    assert!(
        matches!(refused, Err(TransferError::NotLeader { leader: Some(_) })),
        "{refused:?}"
    );
    assert_eq!(leader.log.transfer(Some(other)).await, Ok(other));
    cluster.write_but(leader.id, "two").await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_survivor_goes_on_alone_when_it_is_told_to() {
    let mut cluster = Cluster::start(3).await;
    cluster.write("one").await;
    cluster.agree(&["one"]).await;
    let survivor = cluster.leader().await.id;
    cluster.stop_all().await;
    let dir = dir_of(cluster.dir.path(), survivor);
    assert!(matches!(
        OfflineRaft::open(&dir, store_options(), 9),
        Err(RaftOpenError::AnotherNode { .. })
    ));
    let offline = OfflineRaft::open(&dir, store_options(), survivor).unwrap();
    let kept = offline.read().unwrap();
    assert!(kept.state.is_none() && kept.term > 0);
    assert_eq!(
        kept.commands
            .iter()
            .map(|entry| &entry.payload[..])
            .collect::<Vec<_>>(),
        [b"one"]
    );
    let state = b"\x00\x00\x00\x03one";
    offline
        .force_single(addrs(survivor), 1..=3, 1 << 20, &mut &state[..])
        .unwrap();
    cluster.open(survivor).await;
    cluster.write("alone").await;
    assert_eq!(cluster.agree(&["alone"]).await, ["one", "alone"]);
    let voters = cluster.leader().await.log.members();
    assert_eq!(
        voters.iter().map(|member| member.id).collect::<Vec<_>>(),
        [survivor]
    );
    assert!(cluster.leader().await.log.leaderships().borrow().term > 1 << 20);
    // It grows again.
    cluster.open(8).await;
    cluster.leader().await.log.add(8, addrs(8)).await.unwrap();
    cluster.agree(&["one", "alone"]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_cluster_begins_from_a_snapshot() {
    let mut cluster = Cluster::prepare(3);
    let state = b"\x00\x00\x00\x05saved";
    for id in 1..=3 {
        let dir = dir_of(cluster.dir.path(), id);
        // Each server is begun at another time.
        let begun = SeedTerms {
            log_term: 1 << 20,
            first_term: (1 << 30) + id,
        };
        seed(
            &dir,
            store_options(),
            id,
            cluster.peers.clone(),
            begun,
            &mut &state[..],
        )
        .unwrap();
        let again = seed(
            &dir,
            store_options(),
            id,
            cluster.peers.clone(),
            begun,
            &mut &state[..],
        );
        assert!(matches!(again, Err(RaftOpenError::NotEmpty { .. })));
        cluster.open(id).await;
        if id == 2 {
            // Two are enough for a leader, before the third is there, which was begun in a later term.
            cluster.write("early").await;
        }
    }
    assert!(matches!(
        seed(
            &dir_of(cluster.dir.path(), 9),
            store_options(),
            9,
            BTreeMap::new(),
            SeedTerms {
                log_term: 1,
                first_term: 1,
            },
            &mut &state[..]
        ),
        Err(RaftOpenError::NotAmongPeers { node_id: 9 })
    ));
    cluster.write("new").await;
    assert_eq!(cluster.agree(&["new"]).await, ["saved", "early", "new"]);
    // Any two have one among them that was begun no earlier than the second.
    for node in cluster.nodes.values() {
        assert!(node.applied.borrow().at.term > (1 << 30) + 2);
    }
    until("all are members", || {
        let is_member = |node: &Node| *node.log.admissions().borrow() == Admission::Member;
        cluster.nodes.values().all(is_member)
    })
    .await;
    cluster.stop_all().await;
}
