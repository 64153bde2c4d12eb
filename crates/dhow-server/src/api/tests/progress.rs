//! Progress, how it ends, and the waiting behind it.

use std::time::Duration;

use axum::http::Method;
use dhow_core::replica::{Exit, ReplicaEvent};
use dhow_wire::StabilizationOutcome;
use dhow_wire::api::{LogStream, Progress, ProgressOutcome, ProgressResult};

use super::support::{SHOP, Stream, World, start_events};
use crate::net::node_door::ReplicaPull;
use crate::plane::stabilization::wait_for_stabilization;

const FOLLOW: &str = "/api/v1/deployments/shop/progress";

async fn result(stream: &mut Stream) -> ProgressResult {
    loop {
        let sent = stream.next().await.unwrap();
        if sent.event == "result" {
            assert_eq!(stream.next().await, None, "nothing after the result");
            return sent.json();
        }
        assert_eq!(sent.event, "progress");
    }
}

#[tokio::test]
async fn tells_every_step_until_it_is_ready() {
    let mut world = World::new().await;
    world.post("/api/v1/deployments", SHOP).await;
    world.wait_for_replicas(2).await;
    let mut stream = world.follow(FOLLOW).await;
    let first: Progress = stream.next().await.unwrap().json();
    assert_eq!(
        (
            first.revision,
            first.services[0].pending,
            first.services[0].desired
        ),
        (1, 2, 2)
    );
    let state = world.state();
    let names = state.replicas.keys().map(|key| state.replica_name(key).unwrap());
    let pulls = names.map(|replica| ReplicaPull {
        replica,
        done_bytes: 40,
        total_bytes: Some(100),
    });
    world.door.set_pulls(pulls.collect());
    world.happens(|_| true, &[ReplicaEvent::PullBegan]).await;
    let pulling: Progress = stream.next().await.unwrap().json();
    let told = pulling.services[0].pulling.unwrap();
    assert_eq!(
        (told.replicas, told.done_bytes, told.total_bytes),
        (2, 80, Some(200))
    );
    world.happens(|_| true, &start_events()[1..3]).await;
    let running: Progress = stream.next().await.unwrap().json();
    assert_eq!(
        (running.services[0].running, running.services[0].healthy),
        (2, false)
    );
    world.happens(|_| true, &start_events()[3..]).await;
    let result = result(&mut stream).await;
    assert_eq!(result.outcome, ProgressOutcome::Ready);
    assert_eq!(
        (result.services[0].running, result.services[0].healthy),
        (2, true)
    );
}

#[tokio::test]
async fn a_bad_revision_ends_early_with_its_last_words() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world
        .post("/api/v1/deployments", &SHOP.replace("1.27", "1.28"))
        .await;
    world.wait_for_replicas(3).await;
    let mut stream = world
        .follow(&format!("{FOLLOW}?revision=2&timeout_secs=86400"))
        .await;
    let first: Progress = stream.next().await.unwrap().json();
    assert_eq!(first.revision, 2);
    for line in 0..25 {
        world.writes("web-default-0", line, &format!("line {line}"));
    }
    let is_new = |name: &dhow_core::ids::ReplicaName| name.generation.0 > 1;
    world.happens(is_new, &[ReplicaEvent::PullBegan]).await;
    for _ in 0..3 {
        let ended = ReplicaEvent::Ended {
            exit: Exit::Code(3),
            oom: false,
        };
        world
            .happens(
                is_new,
                &[ReplicaEvent::StartBegan, ReplicaEvent::Started { pid: 7 }, ended],
            )
            .await;
    }
    let result = result(&mut stream).await;
    assert_eq!(result.outcome, ProgressOutcome::Failed);
    let lines: Vec<&str> = result.message.lines().collect();
    assert!(
        lines[0].contains("reverted") && lines[0].contains("`web-default-0` on node 1"),
        "{}",
        lines[0]
    );
    assert_eq!((lines[1], lines[2], lines.len()), ("  logs:", "    line 5", 22));
    let again = world.follow(&format!("{FOLLOW}?revision=2")).await.rest().await;
    assert_eq!(
        again.last().unwrap().json::<ProgressResult>().outcome,
        ProgressOutcome::Failed
    );
}

#[tokio::test]
async fn runs_out_of_time_with_the_logs_of_what_is_missing() {
    let mut world = World::new().await;
    world.post("/api/v1/deployments", SHOP).await;
    world.wait_for_replicas(2).await;
    world.happens(|name| name.index == 0, &start_events()).await;
    world.writes("web-default-1", 1, "cannot reach the database");
    let hint = "a word of its supervisor";
    world.writes_to(LogStream::Notice, "web-default-1", 2, hint);
    let mut stream = world.follow(&format!("{FOLLOW}?timeout_secs=5")).await;
    stream.next().await.unwrap();
    world.clock.advance(5_000);
    let result = result(&mut stream).await;
    assert_eq!(result.outcome, ProgressOutcome::TimedOut);
    assert_eq!(
        result.message,
        "Stabilization timed out: web: 1/2 replicas, healthy=false\n  logs:\n    \
         cannot reach the database\n    a word of its supervisor"
    );
}

#[tokio::test]
async fn runs_out_of_time_with_what_the_new_revision_lacks() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world.writes("web-default-1", 1, "the old one is well");
    world
        .post("/api/v1/deployments", &SHOP.replace("1.27", "1.28"))
        .await;
    world
        .wait_for(|state| state.replicas.keys().any(|key| key.generation.0 == 2))
        .await;
    let is_new = |name: &dhow_core::ids::ReplicaName| name.generation.0 == 2;
    let reason = ReplicaEvent::CouldNotStart {
        message: "nothing is called shop:1.28 there".into(),
    };
    world.happens(is_new, &[ReplicaEvent::PullBegan, reason]).await;
    let mut stream = world.follow(&format!("{FOLLOW}?timeout_secs=5")).await;
    stream.next().await.unwrap();
    world.clock.advance(5_000);
    let result = result(&mut stream).await;
    assert_eq!(result.outcome, ProgressOutcome::TimedOut);
    let lines: Vec<&str> = result.message.lines().collect();
    assert_eq!(
        lines[0],
        "Stabilization timed out: web: 0/2 replicas, healthy=false"
    );
    assert!(
        lines[1].contains("nothing is called shop:1.28 there"),
        "{lines:?}"
    );
    assert!(lines[2].contains("of an earlier revision"), "{lines:?}");
    assert!(!result.message.contains("the old one is well"), "{lines:?}");
}

#[tokio::test]
async fn another_revision_or_a_removal_ends_it() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let mut stream = world.follow(&format!("{FOLLOW}?revision=1")).await;
    assert_eq!(result(&mut stream).await.outcome, ProgressOutcome::Ready);
    world
        .post("/api/v1/deployments", &SHOP.replace("1.27", "1.28"))
        .await;
    let mut stream = world.follow(&format!("{FOLLOW}?revision=1")).await;
    assert_eq!(result(&mut stream).await.outcome, ProgressOutcome::Superseded);
    let mut stream = world.follow(FOLLOW).await;
    // A plan that the removal overtakes would be made again a little later, and this clock stands still.
    world
        .wait_for(|state| state.replicas.keys().any(|key| key.generation.0 == 2))
        .await;
    world.call(Method::DELETE, "/api/v1/deployments/shop", "").await;
    let all_end = ReplicaEvent::Ended {
        exit: Exit::Code(0),
        oom: false,
    };
    let wanted_stop = |state: &dhow_core::state::State| {
        let mut all = state.replicas.values();
        all.all(|replica| replica.wanted == dhow_core::state::Wanted::Stop)
    };
    world.wait_for(wanted_stop).await;
    // Those of the new revision have not started.
    world.happens(|_| true, &[ReplicaEvent::StopBegan]).await;
    world.happens(|name| name.generation.0 == 1, &[all_end]).await;
    let outcome = result(&mut stream).await.outcome;
    assert_eq!(outcome, ProgressOutcome::Removed);
    world.get(FOLLOW).await.problem(404);
}

#[tokio::test]
async fn waiting_looks_at_least_once_and_wakes_by_change() {
    let mut world = World::new().await;
    let spec = dhow_wire::parse_deployment(SHOP, "shop.yaml", &|_| None).unwrap();
    let manager = world.api.manager.clone();
    let early = wait_for_stabilization(&manager, &spec, Duration::ZERO).await;
    let StabilizationOutcome::TimedOut { message } = early.outcome else {
        panic!("nothing is deployed");
    };
    assert_eq!(
        message,
        "Stabilization timed out: web: 0/2 replicas, healthy=false"
    );
    world.post("/api/v1/deployments", SHOP).await;
    world.wait_for_replicas(2).await;
    let waiting = tokio::spawn({
        let (manager, spec) = (manager.clone(), spec.clone());
        async move { wait_for_stabilization(&manager, &spec, Duration::from_secs(60)).await }
    });
    world.happens(|_| true, &start_events()).await;
    let ready = waiting.await.unwrap();
    assert_eq!(ready.outcome, StabilizationOutcome::Ready);
    assert_eq!(ready.services[0].endpoints, ["http://localhost:8080"]);
    let again = wait_for_stabilization(&manager, &spec, Duration::ZERO).await;
    assert_eq!(again.outcome, StabilizationOutcome::Ready, "even with no time");
}

const WORK: &str = "version: v1\ndeployment: shop\nservices:\n  once:\n    image: import:1\n    rtype: job\n    \
                    restart: { policy: never }\n";

fn ended(code: i32) -> ReplicaEvent {
    ReplicaEvent::Ended {
        exit: Exit::Code(code),
        oom: false,
    }
}

#[tokio::test]
async fn a_job_is_waited_for_until_it_is_done() {
    let mut world = World::new().await;
    let spec = dhow_wire::parse_deployment(WORK, "shop.yaml", &|_| None).unwrap();
    let manager = world.api.manager.clone();
    world.post("/api/v1/deployments", WORK).await;
    world.wait_for_replicas(1).await;
    world.happens(|_| true, &start_events()).await;
    world
        .wait_for(|state| state.replicas.values().all(|replica| replica.is_healthy()))
        .await;
    let StabilizationOutcome::TimedOut { message } = wait_for_stabilization(&manager, &spec, Duration::ZERO)
        .await
        .outcome
    else {
        panic!("its work is not done");
    };
    assert_eq!(
        message,
        "Stabilization timed out: once: 0/1 replicas, healthy=false"
    );
    // Who waits no longer is told so, and the revision goes on.
    let late = world
        .follow(&format!("{FOLLOW}?timeout_secs=0"))
        .await
        .rest()
        .await;
    let late: ProgressResult = late.last().unwrap().json();
    assert_eq!(late.outcome, ProgressOutcome::TimedOut);
    assert!(
        late.message.ends_with("\n  once: at work, 0 of 1 done"),
        "{}",
        late.message
    );
    let mut stream = world.follow(FOLLOW).await;
    let under_way: Progress = stream.next().await.unwrap().json();
    assert_eq!(
        under_way.services[0].message.as_deref(),
        Some("at work, 0 of 1 done")
    );
    world.happens(|_| true, &[ended(0)]).await;
    assert_eq!(result(&mut stream).await.outcome, ProgressOutcome::Ready);
    let ready = wait_for_stabilization(&manager, &spec, Duration::ZERO).await;
    assert_eq!(ready.outcome, StabilizationOutcome::Ready);
}

#[tokio::test]
async fn a_job_that_fails_fails_its_revision() {
    let mut world = World::new().await;
    world.post("/api/v1/deployments", WORK).await;
    world.wait_for_replicas(1).await;
    let mut stream = world.follow(FOLLOW).await;
    world.happens(|_| true, &start_events()).await;
    world.happens(|_| true, &[ended(3)]).await;
    let result = result(&mut stream).await;
    assert_eq!(result.outcome, ProgressOutcome::Failed);
    assert!(
        result
            .message
            .contains("`once-default-0` on node 1 failed: it exited with 3"),
        "{}",
        result.message
    );
}
