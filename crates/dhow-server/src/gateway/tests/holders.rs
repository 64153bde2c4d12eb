//! Who may speak for nodes: the servers that the cluster has now, and nobody else.

use dhow_core::lease::best_server;
use dhow_wire::grpc::Holders;
use dhow_wire::grpc::proto::{HeldReport, HeldReports, HolderBeat, LastSign, OpenRequest, OpenSession};

use futures_util::poll;

use super::*;

fn open_for(node_id: u64) -> OpenRequest {
    let asked = OpenSession {
        node_id,
        is_worker: true,
        ..OpenSession::default()
    };
    OpenRequest {
        boot: 7,
        sessions: vec![asked],
    }
}

fn broke(node_id: u64) -> HolderBeat {
    let sign = LastSign {
        node_id,
        ..LastSign::default()
    };
    HolderBeat {
        boot: 7,
        seq: 1,
        is_full: true,
        broke: vec![sign],
        ..HolderBeat::default()
    }
}

fn report_of(node_id: u64) -> HeldReports {
    let report = HeldReport {
        node_id,
        is_worker: true,
        report: Some(beat(node_id)),
    };
    HeldReports {
        reports: vec![report],
    }
}

#[tokio::test]
async fn only_servers_that_the_cluster_has_now_speak_for_nodes() {
    let door = Door::open(&[7]).await;
    door.make_worker(7).await;
    let lives_until_ms = door.server.leases.deadline_ms(NodeId(7));
    door.server.clock.advance(1_000);
    // A worker, also for itself; a server that was taken out; somebody without a certificate.
    for peer in [worker(7), worker(8), member(3), None] {
        let refused = [
            refusal(door.gateway.open(from(peer, open_for(7))).await.unwrap_err()),
            refusal(
                Holders::beat(&door.gateway, from(peer, broke(7)))
                    .await
                    .unwrap_err(),
            ),
            refusal(
                Holders::report(&door.gateway, from(peer, report_of(7)))
                    .await
                    .unwrap_err(),
            ),
        ];
        for refused in refused {
            assert!(matches!(refused, Refusal::Identity(_)), "{refused}");
        }
    }
    assert_eq!(door.server.leases.deadline_ms(NodeId(7)), lives_until_ms);
    let opened = door.gateway.open(from(member(2), open_for(7))).await.unwrap();
    assert!(matches!(
        opened.into_inner().sessions[0].outcome,
        Some(proto::opened_session::Outcome::Session(_))
    ));
}

#[tokio::test]
async fn what_a_worker_says_of_itself_is_short_before_it_is_passed_on() {
    let door = Door::open(&[7]).await;
    door.make_worker(7).await;
    // Labels are the cluster's to say, so that a worker's are not even carried.
    let mut labelled = hello(7);
    let info = labelled.info.as_mut().unwrap();
    info.labels = (0..2_000)
        .map(|label| (label.to_string(), "x".repeat(4_096)))
        .collect();
    let mut events = door.session(worker(7), labelled).await.unwrap();
    greeted(&mut events).await;
    assert!(door.info_of(7).labels.is_empty());
    let mut named = hello(7);
    named.highest_cluster = "x".repeat(1024 * 1024);
    let mut long = hello(7);
    long.info.as_mut().unwrap().os = "x".repeat(1024 * 1024);
    for request in [named, long] {
        let refused = door.session(worker(7), request).await.err().unwrap();
        assert!(matches!(refused, Refusal::Malformed(_)), "{refused}");
    }
}

/// Lets half a second pass in which the other server says that it serves all, and this one says it to itself.
async fn both_are_fresh(door: &Door, seq: u64) {
    let fresh = HolderBeat {
        boot: 7,
        seq,
        is_full: true,
        is_fresh: true,
        ..HolderBeat::default()
    };
    Holders::beat(&door.gateway, from(member(2), fresh))
        .await
        .unwrap();
    // The task of the leases and the holder.
    door.server.clock.wait_for_sleepers(2).await;
    door.server.clock.advance(500);
    door.server.clock.wait_for_sleepers(2).await;
}

#[tokio::test]
async fn a_node_is_sent_to_its_server_once_that_has_been_there_for_a_minute() {
    let belongs_to = |server| {
        let mut ids = (7..).filter(|id| best_server(NodeId(*id), [OWN, NodeId(2)]) == Some(server));
        ids.next().unwrap()
    };
    let (here, there) = (belongs_to(OWN), belongs_to(NodeId(2)));
    let door = Door::open(&[here, there]).await;
    tokio::spawn(door.gateway.clone().hold(door.end.clone()));
    let mut stays = door.session(member(here), hello(here)).await.unwrap();
    greeted(&mut stays).await;
    let mut moves = door.session(member(there), hello(there)).await.unwrap();
    greeted(&mut moves).await;
    for seq in 1..120 {
        both_are_fresh(&door, seq).await;
        assert!(poll!(moves.next()).is_pending(), "after {seq} half seconds");
    }
    for seq in 120..130 {
        both_are_fresh(&door, seq).await;
    }
    let Some(Event::Move(to)) = next(&mut moves).await else {
        panic!("it is not sent to its server");
    };
    assert_eq!((to.server_id, to.address.as_str()), (2, "server-2:3669"));
    // One that does not go, because it cannot or does not know the word, is served as before and told no more.
    door.report(member(there), beat(there)).await.unwrap();
    for seq in 130..140 {
        both_are_fresh(&door, seq).await;
    }
    assert!(poll!(moves.next()).is_pending());
    assert!(poll!(stays.next()).is_pending());
    door.end.cancel();
}
