//! What becomes of proposals.

use bytes::Bytes;
use dhow_server::plane::log::{Log, ProposeError};

use crate::cluster::{Cluster, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_take_writes_in_one_order() {
    let mut cluster = Cluster::calm(3).await;
    for number in 0..20 {
        cluster.write(&format!("write {number}")).await;
    }
    let wanted: Vec<String> = (0..20).map(|number| format!("write {number}")).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let all = cluster.agree(&wanted).await;
    assert_eq!(all, wanted, "in order and once each");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_a_proposal_stay_together_and_in_order() {
    let mut cluster = Cluster::calm(3).await;
    let leader = cluster.leader().await;
    let proposals = (0..200).map(|number| {
        let part = |part: &str| Bytes::from(format!("{number}-{part}"));
        leader.propose(vec![part("a"), part("b"), part("c")])
    });
    for outcome in futures_util::future::join_all(proposals).await {
        outcome.unwrap();
    }
    let all = cluster.agree(&["199-c"]).await;
    assert_eq!(all.len(), 600);
    for part in all.chunks(3) {
        let text: Vec<_> = part
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect();
        let (number, _) = text[0].split_once('-').unwrap();
        assert_eq!(
            text,
            [
                format!("{number}-a"),
                format!("{number}-b"),
                format!("{number}-c")
            ]
        );
    }
    let entries = leader.log.status().committed_index;
    assert!(entries < 150, "200 proposals took {entries} entries of the log");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_takes_nothing_and_names_the_leader() {
    let mut cluster = Cluster::calm(3).await;
    let leader = cluster.leader().await.id;
    cluster.write("one").await;
    cluster.agree(&["one"]).await;
    let follower = &cluster.nodes[&cluster.others(leader)[0]];
    match follower.write("two").await {
        Err(ProposeError::NotLeader { leader: Some(named) }) => assert_eq!(named, leader),
        other => panic!("{other:?}"),
    }
    match follower.read().await {
        Err(ProposeError::NotLeader { leader: Some(named) }) => assert_eq!(named, leader),
        other => panic!("{other:?}"),
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_that_is_too_large_is_refused_at_once() {
    let mut cluster = Cluster::start(1).await;
    let leader = cluster.leader().await;
    match leader.propose(vec![Bytes::from(vec![0; 9 * 1024 * 1024])]).await {
        Err(ProposeError::Store(_)) => {}
        other => panic!("{other:?}"),
    }
    leader.write("small").await.unwrap();
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_majority_acknowledges_nothing_and_says_that_it_is_not_sure() {
    let mut cluster = Cluster::start(3).await;
    let old = cluster.leader().await.id;
    cluster.write("before").await;
    cluster.isolate(old);
    let lonely = &cluster.nodes[&old];
    let outcome = lonely.write("lonely").await;
    assert!(outcome.is_err(), "nobody else has it");
    until("it is not sure any more, and hears nobody", || {
        lonely.leadership().leader.is_none()
    })
    .await;
    assert!(matches!(
        lonely.write("too late").await,
        Err(ProposeError::NotLeader { leader: None })
    ));
    assert!(matches!(lonely.read().await, Err(ProposeError::NotLeader { .. })));
    cluster.write_but(old, "after").await;
    cluster.network.heal();
    let all = cluster.agree(&["before", "after"]).await;
    assert!(
        !all.contains(&Bytes::from_static(b"too late")),
        "it was refused for certain"
    );
    if matches!(outcome, Err(ProposeError::NotLeader { .. })) {
        assert!(
            !all.contains(&Bytes::from_static(b"lonely")),
            "it was refused for certain"
        );
    }
    cluster.stop_all().await;
}
