//! What happens to replicas while the agent lives.

use dhow_core::replica::{Exit, ReplicaState};
use dhow_core::spec::{Check, HealthSpec, RType, TimeSpan};
use dhow_core::state::{Phase, State};
use dhow_driver::fake::FakeHost;
use dhow_wire::door::{LineFilter, LogItem, LogQuery};

use super::plane::{Node, Plane, healthy, replicas, service};

fn phase(state: &dhow_core::state::State) -> Option<Phase> {
    state
        .deployments
        .values()
        .next()
        .map(|deployment| deployment.phase)
}

#[tokio::test(start_paused = true)]
async fn what_is_assigned_runs_and_what_is_not_is_gone() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(3, &[])), ("db", service(1, &[]))]);
    plane
        .until("all healthy and stable", |state| {
            healthy(state) == 4 && phase(state) == Some(Phase::Stable)
        })
        .await;
    assert_eq!(host.names().len(), 4);
    plane.deploy(&[("web", service(1, &[]))]);
    plane
        .until("scaled down", |state| {
            state.replicas.len() == 1 && state.services.len() == 1
        })
        .await;
    plane.remove();
    plane.until("removed", |state| state.deployments.is_empty()).await;
    while !host.names().is_empty() || !node.handle.names().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_ends_removes_what_the_control_plane_knows_to_be_over() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(2, &[("FAKE_REMOVE_DELAY_MS", "3000")]))]);
    plane.until("healthy", |state| healthy(state) == 2).await;
    plane.remove();
    plane.until("removed", |state| state.deployments.is_empty()).await;
    assert_eq!(
        host.names().len(),
        2,
        "told when they have ended, not when they are removed"
    );
    node.end().await;
    assert_eq!(host.names(), []);
    // One that cannot be removed keeps nobody for ever.
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(1, &[("FAKE_REMOVE_DELAY_MS", "3600000")]))]);
    plane.until("healthy", |state| healthy(state) == 1).await;
    plane.remove();
    plane.until("removed", |state| state.deployments.is_empty()).await;
    node.end().await;
    assert_eq!(host.names().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_ends_waits_for_nothing_that_runs() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    let mut slow = service(1, &[("FAKE_STOP_DELAY_MS", "3000")]);
    slow.stop.grace = TimeSpan::from_secs(600);
    plane.deploy(&[("web", service(1, &[])), ("slow", slow)]);
    plane.until("healthy", |state| healthy(state) == 2).await;
    plane.deploy(&[("web", service(1, &[]))]);
    let stops = |state: &State| {
        replicas(state)
            .iter()
            .any(|replica| replica.machine.state == ReplicaState::Stopping)
    };
    plane.until("one is ending", stops).await;
    node.end().await;
    assert_eq!(host.names().len(), 2, "what ends goes on to");
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_measured_and_told() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let _node = Node::start(&plane, &host, dir.path()).await;
    let mut usages = plane.usages();
    plane.deploy(&[("web", service(2, &[]))]);
    let told = usages
        .wait_for(|usage| usage.replicas.len() == 2)
        .await
        .unwrap()
        .clone();
    assert!(told.memory_bytes > 0, "of the whole machine");
    for (name, used) in &told.replicas {
        assert!(used.started_unix_secs.is_some(), "{name}: {used:?}");
    }
    plane.remove();
    usages.wait_for(|usage| usage.replicas.is_empty()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_is_started_again_after_a_growing_pause() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let _node = Node::start(&plane, &host, dir.path()).await;
    let mut good = service(1, &[]);
    good.restart.max_attempts = Some(20);
    plane.deploy(&[("web", good)]);
    plane
        .until("stable", |state| phase(state) == Some(Phase::Stable))
        .await;
    let name = host.names()[0].clone();
    host.end(&name, dhow_driver::driver::Exit::code(7));
    let state = plane
        .until("it waits", |state| {
            replicas(state)[0].machine.state == ReplicaState::Backoff
        })
        .await;
    assert_eq!(replicas(&state)[0].machine.exit, Some(Exit::Code(7)));
    let state = plane
        .until("it runs again", |state| {
            replicas(state)[0].machine.restarts == 1 && healthy(state) == 1
        })
        .await;
    assert_eq!(replicas(&state)[0].machine.failures, 1);
    plane
        .until("a steady run makes the failure forgotten", |state| {
            replicas(state)[0].machine.failures == 0
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_start_says_why() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(1, &[("FAKE_START_ERROR", "no such program")]))]);
    let state = plane
        .until("the revision fails", |state| phase(state) == Some(Phase::Failed))
        .await;
    let deployment = state.deployments.values().next().unwrap();
    let told = format!("{deployment:?}");
    assert!(told.contains("no such program"), "{told}");
    plane.remove();
    plane.until("removed", |state| state.deployments.is_empty()).await;
    drop(node);
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_one_is_restarted_and_its_last_words_are_kept() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    let script = [
        ("FAKE_UNHEALTHY_AFTER_MS", "5000"),
        ("FAKE_STDERR", "out of cheese"),
        ("FAKE_STOP_CODE", "0"),
    ];
    let mut sick = service(1, &script);
    let mut health = HealthSpec::of(Check::Tcp { port: 80 });
    (health.interval, health.retries) = (TimeSpan::from_secs(1), 2);
    sick.health = Some(health);
    plane.deploy(&[("web", sick)]);
    let state = plane
        .until("it is to be restarted", |state| {
            replicas(state)
                .first()
                .is_some_and(|replica| replica.machine.state == ReplicaState::Backoff)
        })
        .await;
    let message = replicas(&state)[0].machine.message.clone().unwrap();
    assert!(message.contains("2 times in a row"), "{message}");
    let name = host.names()[0].clone();
    plane.remove();
    plane.until("removed", |state| state.deployments.is_empty()).await;
    while !host.names().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let mut items = node.handle.logs(LogQuery {
        replicas: vec![name],
        tail: Some(20),
        follow: false,
        lines: LineFilter::default(),
    });
    let mut words = Vec::new();
    while let Some(LogItem::Record(record)) = items.recv().await {
        words.push(record.text);
    }
    assert!(words.contains(&"out of cheese".to_owned()), "{words:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_its_end_and_no_further() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let _node = Node::start(&plane, &host, dir.path()).await;
    let mut job = service(2, &[("FAKE_EXIT_CODE", "0"), ("FAKE_EXIT_AFTER_MS", "3000")]);
    job.rtype = RType::Job;
    plane.deploy(&[("sums", job)]);
    plane
        .until("done", |state| phase(state) == Some(Phase::Stable))
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(120)).await;
    assert_eq!(host.starts(), 2);
}

#[tokio::test(start_paused = true)]
async fn secrets_reach_the_workload_or_their_lack_is_told() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let _node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[
        ("web", service(1, &[("KEY", "$S:known")])),
        ("db", service(1, &[("KEY", "$S:unknown")])),
    ]);
    let state = plane
        .until("one runs, one says why not", |state| {
            let messages = replicas(state)
                .iter()
                .filter(|replica| replica.machine.message.is_some())
                .count();
            healthy(state) == 1 && messages == 1
        })
        .await;
    let told = format!("{:?}", replicas(&state));
    assert!(told.contains("dhow secret set unknown"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_start_is_called_off_while_its_image_is_fetched() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let _node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(1, &[("FAKE_PREPARE_DELAY_MS", "3600000")]))]);
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    plane.remove();
    plane.until("removed", |state| state.deployments.is_empty()).await;
    assert_eq!(host.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_nobody_heard_the_end_of_is_found_to_run() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let _node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(1, &[("FAKE_START_SILENT", "1")]))]);
    let state = plane
        .until("it runs and is shown so", |state| {
            healthy(state) == 1 && phase(state) == Some(Phase::Stable)
        })
        .await;
    let machine = &replicas(&state)[0].machine;
    assert_eq!((machine.restarts, machine.failures), (0, 0));
    assert_eq!(host.starts(), 1);
}
