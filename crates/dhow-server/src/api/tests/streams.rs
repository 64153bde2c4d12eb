//! Events and logs.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Method;
use dhow_core::command::{ClusterCommand, Command};
use dhow_core::replica::{Exit, ReplicaEvent};
use dhow_core::state::{State, Wanted};
use dhow_wire::api::{EventDocument, LogStream};

use super::support::{Sent, World, request};

#[tokio::test]
async fn events_go_on_after_the_last_one_that_was_seen() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    // What is on disk and in memory is told by the writer a moment after the state has it.
    let newest = world.state().revision;
    world
        .handle
        .view()
        .events()
        .newest()
        .wait_for(|id| id.revision >= newest)
        .await
        .unwrap();
    let all = world.follow("/api/v1/events").await.rest().await;
    let kinds: Vec<&str> = all.iter().map(|sent| sent.event.as_str()).collect();
    for kind in [
        "node_joined",
        "deployed",
        "replica_placed",
        "replica_started",
        "stable",
    ] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
    let deployed = all.iter().find(|sent| sent.event == "deployed").unwrap();
    let document: EventDocument = deployed.json();
    assert_eq!(document.kind, "deployed");
    assert_eq!(document.deployment.as_deref(), Some("shop"));
    assert_eq!(deployed.id, format!("{}.{}", document.revision, document.part));

    for (place, seen) in all.iter().enumerate() {
        let call = request(Method::GET, "/api/v1/events?since=0").header("last-event-id", &seen.id);
        let rest = world.open(call.body(Body::empty()).unwrap()).await.rest().await;
        assert_eq!(rest, all[place + 1..], "after {}", seen.id);
    }
    let since = world
        .follow(&format!("/api/v1/events?since={}", document.revision))
        .await
        .rest()
        .await;
    let later = |sent: &&Sent| sent.json::<EventDocument>().revision > document.revision;
    assert_eq!(since, all.iter().filter(later).cloned().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_follower_hears_what_happens_and_ends_with_the_server() {
    let world = World::new().await;
    let mut stream = world.follow("/api/v1/events?follow=true").await;
    while stream.next().await.unwrap().event != "node_joined" {}
    world.call(Method::PUT, "/api/v1/secrets/a", "x").await;
    let mut heard = stream.next().await.unwrap();
    while heard.event != "secret_set" {
        heard = stream.next().await.unwrap();
    }
    world.end.cancel();
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn events_that_are_no_longer_kept_are_told_as_such() {
    let world = World::with(|options, _| options.event_store = None).await;
    let input = world.handle.input();
    // Together, and fewer at a time than the inbox holds.
    for _ in 0..9 {
        let writes = (0..500).map(|_| {
            let command = ClusterCommand::SetSecret {
                name: "a".into(),
                sealed: Arc::from([0].as_slice()),
            };
            input.write(Command::Cluster(command), None)
        });
        let written = futures_util::future::join_all(writes).await;
        assert!(written.iter().all(Result::is_ok));
    }
    let newest = world.state().revision;
    world
        .handle
        .view()
        .events()
        .newest()
        .wait_for(|id| id.revision >= newest)
        .await
        .unwrap();
    assert_eq!(
        world.get("/api/v1/events?since=1").await.problem(410).code,
        "revision_gone"
    );
    let all = world.follow("/api/v1/events").await.rest().await;
    assert_eq!(
        all.len(),
        crate::plane::runtime::limits::EVENT_HUB_MAX,
        "all that are kept"
    );
}

#[tokio::test]
async fn the_tail_is_merged_by_time() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    for (replica, time, text) in [
        (0, 10, "a"),
        (1, 15, "b"),
        (0, 20, "c"),
        (1, 5, "z"),
        (0, 30, "d"),
    ] {
        world.writes(&format!("web-default-{replica}"), time, text);
    }
    let texts = async |path: &str| {
        let mut stream = world.follow(path).await;
        let mut texts = String::new();
        while let Some(record) = stream.record().await {
            texts.push_str(&record.text);
        }
        texts
    };
    assert_eq!(texts("/api/v1/logs?deployment=shop").await, "zabcd");
    assert_eq!(texts("/api/v1/logs?deployment=shop&name=web&tail=3").await, "bcd");
    assert_eq!(texts("/api/v1/logs?deployment=shop&grep=c").await, "c");
    assert_eq!(
        texts("/api/v1/logs?deployment=shop&name=web-default-1").await,
        "zb"
    );
    assert_eq!(texts("/api/v1/logs?deployment=shop&tail=0").await, "");
}

#[tokio::test]
async fn a_follower_of_logs_hears_replicas_that_appear_later() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world.writes("web-default-0", 1, "before");
    let mut stream = world
        .follow("/api/v1/logs?deployment=shop&follow=true&tail=5")
        .await;
    assert_eq!(stream.record().await.unwrap().text, "before");
    world.writes("web-default-1", 2, "after");
    assert_eq!(stream.record().await.unwrap().text, "after");
    let scale = r#"{"changes":[{"service":"web","replicas":3}]}"#;
    world.post("/api/v1/deployments/shop/scale", scale).await;
    world.wait_for_replicas(3).await;
    world.writes("web-default-2", 3, "new");
    assert_eq!(stream.record().await.unwrap().text, "new");
    world.end.cancel();
    assert_eq!(stream.record().await, None);
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_a_notice() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world.door.cut_off(dhow_core::ids::NodeId(1));
    let mut stream = world.follow("/api/v1/logs?deployment=shop").await;
    let notice = stream.record().await.unwrap();
    assert_eq!(notice.stream, LogStream::Notice);
    assert!(notice.text.contains("node 1 does not answer"), "{}", notice.text);
    assert_eq!(stream.record().await, None);
}

#[tokio::test]
async fn a_service_without_replicas_says_so_in_place_of_lines() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let scale = r#"{"changes":[{"service":"web","replicas":0}]}"#;
    world.post("/api/v1/deployments/shop/scale", scale).await;
    let is_asked = |state: &State| {
        state
            .replicas
            .values()
            .all(|replica| replica.wanted == Wanted::Stop)
    };
    world.wait_for(is_asked).await;
    let ended = ReplicaEvent::Ended {
        exit: Exit::Code(0),
        oom: false,
    };
    world.happens(|_| true, &[ReplicaEvent::StopBegan, ended]).await;
    world.wait_for_replicas(0).await;
    let mut stream = world.follow("/api/v1/logs?deployment=shop&name=web").await;
    let notice = stream.record().await.unwrap();
    assert_eq!(
        (notice.stream, notice.replica.as_str()),
        (LogStream::Notice, "shop/web")
    );
    assert!(notice.text.contains("`dhow explain shop/web`"), "{}", notice.text);
    assert_eq!(stream.record().await, None);
}
