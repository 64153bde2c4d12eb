//! Who may speak for nodes: the servers that the cluster has now, and nobody else.

use dhow_wire::grpc::Holders;
use dhow_wire::grpc::proto::{HeldReport, HeldReports, HolderBeat, LastSign, OpenRequest, OpenSession};

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
