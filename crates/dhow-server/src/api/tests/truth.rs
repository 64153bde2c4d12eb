//! What is said of work that is done, of drains and of paused rollouts.

use dhow_core::replica::{Exit, ReplicaEvent};
use dhow_core::state::{Phase, Wanted};
use dhow_wire::api::{Explanation, LogStream, ProgressOutcome, ProgressResult};
use dhow_wire::{DeploymentState, DeploymentStatus, NodeStatus, ReplicaStateName, ReplicaStatus};

use super::support::{World, start_events};

const MIGRATE: &str = "version: v1\ndeployment: shop\nservices:\n  migrate:\n    image: nginx:1.27\n    rtype: job\n    \
                       restart: { policy: never }\n";

fn ended(code: i32) -> ReplicaEvent {
    ReplicaEvent::Ended {
        exit: Exit::Code(code),
        oom: false,
    }
}

async fn explain(world: &World, name: &str) -> Explanation {
    let path = format!("/api/v1/deployments/shop/explain?name={name}");
    world.get(&path).await.json()
}

#[tokio::test]
async fn work_that_is_done_is_told_as_done_also_after_a_revert() {
    let mut world = World::new().await;
    world.post("/api/v1/deployments", MIGRATE).await;
    world.wait_for_replicas(1).await;
    world.happens(|_| true, &start_events()).await;
    let at_work = explain(&world, "migrate").await;
    assert_eq!(
        at_work.lines[0],
        "shop/migrate is deploying: 0 of 1 done, 1 at work"
    );
    world.happens(|_| true, &[ended(0)]).await;
    world
        .wait_for(|state| {
            state
                .deployments
                .values()
                .all(|known| known.phase == Phase::Stable)
        })
        .await;
    let done = explain(&world, "migrate").await;
    assert_eq!(done.lines[0], "shop/migrate is stable: 1 of 1 done");
    assert_eq!(
        done.lines[1],
        "migrate-default-0 has done its work on node 1, 0 s ago"
    );

    world
        .post("/api/v1/deployments", &MIGRATE.replace("1.27", "1.28"))
        .await;
    let is_new = |state: &dhow_core::state::State| state.replicas.keys().any(|key| key.generation.0 == 2);
    world.wait_for(is_new).await;
    world
        .happens(|name| name.generation.0 == 2, &start_events())
        .await;
    world.happens(|name| name.generation.0 == 2, &[ended(3)]).await;
    world
        .wait_for(|state| {
            state
                .deployments
                .values()
                .all(|known| known.phase == Phase::Reverted)
        })
        .await;
    let status: DeploymentStatus = world.get("/api/v1/deployments/shop").await.json();
    let migrate = &status.services[0];
    assert_eq!((migrate.running, migrate.desired, migrate.done), (1, 1, Some(1)));
    let replicas: Vec<ReplicaStatus> = world.get("/api/v1/replicas").await.json();
    let listed: Vec<_> = replicas
        .iter()
        .map(|replica| (replica.id.as_str(), replica.state, replica.exit_code))
        .collect();
    assert_eq!(listed, [("migrate-default-0", ReplicaStateName::Exited, Some(0))]);
    let back = explain(&world, "migrate").await;
    assert_eq!(
        back.lines[0],
        "shop/migrate was reverted and is stable: 1 of 1 done"
    );
    assert!(back.lines[1].contains("its work was done before"), "{back:?}");
    for asked in ["", "&name=migrate", "&name=migrate-default-0"] {
        let path = format!("/api/v1/logs?deployment=shop{asked}");
        let mut logs = world.follow(&path).await;
        let notice = logs.record().await.unwrap();
        assert_eq!(notice.stream, LogStream::Notice);
        assert_eq!(notice.replica, "migrate-default-0");
        assert!(notice.text.contains("and its log with it"), "{notice:?}");
        assert_eq!(logs.record().await, None);
    }
}

#[tokio::test]
async fn what_is_to_end_is_not_told_to_be_started_again() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world
        .happens(
            |name| name.index == 1,
            &[&start_events()[..], &[ended(9)]].concat(),
        )
        .await;
    let failed = explain(&world, "web-default-1").await;
    assert!(
        failed.lines[0].contains("ago and is to be started again"),
        "{failed:?}"
    );
    let scale = r#"{"changes":[{"service":"web","replicas":1}]}"#;
    world.post("/api/v1/deployments/shop/scale", scale).await;
    let is_asked = |state: &dhow_core::state::State| {
        state
            .replicas
            .values()
            .any(|replica| replica.wanted == Wanted::Stop)
    };
    world.wait_for(is_asked).await;
    let ending = explain(&world, "web-default-1").await;
    assert!(
        ending.lines[0].contains("failed on node 1 0 s ago and is to end"),
        "{ending:?}"
    );
}

#[tokio::test]
async fn a_drain_makes_nothing_worse_than_it_is_and_says_what_it_waits_for() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world.register(2).await;
    world.post("/api/v1/nodes/1/drain", "{}").await;
    world.wait_for_replicas(3).await;
    let status: DeploymentStatus = world.get("/api/v1/deployments/shop").await.json();
    let web = &status.services[0];
    assert_eq!((web.running, web.desired, web.healthy), (2, 2, true));
    assert_eq!(status.state, DeploymentState::Stable);
    // The plan that placed the new one says nothing of it yet, the next one does.
    let waits = loop {
        let node: NodeStatus = world.get("/api/v1/nodes/1").await.json();
        let waits = node.drain.unwrap().waiting;
        if waits.len() == 2 {
            break waits;
        }
        tokio::task::yield_now().await;
    };
    let why: Vec<&str> = waits.iter().map(|wait| wait.why.as_str()).collect();
    assert_eq!(
        why,
        [
            "stays until the one in its place on node 2 has proved itself",
            "leaves node 1 when others of its service have been replaced and are healthy"
        ]
    );
    let explained = explain(&world, "web").await;
    let there = &explained.replicas[0].placed_because;
    assert!(
        there.contains("1 of 2 nodes take new replicas; node 1 drains"),
        "{there}"
    );
}

#[tokio::test]
async fn what_a_system_service_has_on_a_drained_node_holds_nothing_up() {
    let mut world = World::new().await;
    world.register(2).await;
    let agent = "version: v1\ndeployment: shop\nservices:\n  agent:\n    image: nginx:1.27\n    rtype: system\n    \
                 rollout: { min_healthy: 0s }\n";
    world.post("/api/v1/deployments", agent).await;
    world.wait_for_replicas(2).await;
    let state = world.state();
    let (first, _) = state
        .replicas
        .iter()
        .find(|(_, replica)| replica.node.0 == 1)
        .unwrap();
    let index = first.slot.index;
    world.happens(|name| name.index == index, &start_events()).await;
    let rules = r#"{"ignore_system":true}"#;
    world.post("/api/v1/nodes/2/drain", rules).await;
    let is_stable = |state: &dhow_core::state::State| {
        state
            .deployments
            .values()
            .all(|known| known.phase == Phase::Stable)
    };
    world.wait_for(is_stable).await;
    world
        .post("/api/v1/deployments", &agent.replace("1.27", "1.28"))
        .await;
    let is_asked = |state: &dhow_core::state::State| {
        state
            .replicas
            .values()
            .any(|replica| replica.wanted == Wanted::Stop)
    };
    world.wait_for(is_asked).await;
    world
        .happens(|name| name.index == index, &[ReplicaEvent::StopBegan, ended(0)])
        .await;
    let is_new = |state: &dhow_core::state::State| state.replicas.keys().any(|key| key.generation.0 == 2);
    world.wait_for(is_new).await;
    world
        .happens(|name| name.generation.0 == 2, &start_events())
        .await;
    world.wait_for(is_stable).await;
    let status: DeploymentStatus = world.get("/api/v1/deployments/shop").await.json();
    let agent = &status.services[0];
    assert_eq!((agent.running, agent.desired, agent.healthy), (1, 1, true));
    assert_eq!((agent.outdated, status.state), (None, DeploymentState::Stable));
    let listed: Vec<ReplicaStatus> = world.get("/api/v1/replicas").await.json();
    assert_eq!(listed.len(), 2, "it is still there: {listed:?}");
}

#[tokio::test]
async fn a_scale_of_a_paused_rollout_waits_for_its_counts_alone() {
    let mut world = World::new().await;
    let shop = super::support::SHOP.replace("min_healthy: 0s", "min_healthy: 0s, on_failure: pause");
    world.post("/api/v1/deployments", &shop).await;
    world.wait_for_replicas(2).await;
    world.happens(|_| true, &start_events()).await;
    world
        .wait_for(|state| {
            state
                .deployments
                .values()
                .all(|known| known.phase == Phase::Stable)
        })
        .await;
    world
        .post("/api/v1/deployments", &shop.replace("1.27", "1.28"))
        .await;
    world.wait_for_replicas(3).await;
    let bad = [
        ReplicaEvent::PullBegan,
        ReplicaEvent::StartBegan,
        ReplicaEvent::CouldNotStart {
            message: "no such program".into(),
        },
    ];
    world.happens(|name| name.generation.0 == 2, &bad).await;
    let again = [
        ReplicaEvent::StartBegan,
        ReplicaEvent::CouldNotStart {
            message: "no such program".into(),
        },
    ];
    for _ in 0..2 {
        world.happens(|name| name.generation.0 == 2, &again).await;
    }
    world
        .wait_for(|state| {
            state
                .deployments
                .values()
                .all(|known| known.phase == Phase::Failed)
        })
        .await;
    let body = r#"{"changes":[{"service":"web","replicas":1}]}"#;
    world.post("/api/v1/deployments/shop/scale", body).await;
    let mut stream = world
        .follow("/api/v1/deployments/shop/progress?timeout_secs=60")
        .await;
    let result: ProgressResult = loop {
        let event = stream.next().await.unwrap();
        if event.event == "result" {
            break event.json();
        }
    };
    assert_eq!(result.outcome, ProgressOutcome::Ready, "{result:?}");
    assert!(result.message.contains("stays paused"), "{}", result.message);
}
