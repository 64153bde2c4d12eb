//! What happens to replicas when the agent, or its way to the control plane, does not live.

use std::collections::BTreeMap;
use std::time::Duration;

use dhow_core::replica::{Exit, ReplicaState};
use dhow_driver::fake::FakeHost;

use super::plane::{Node, Plane, healthy, replicas, service};

fn pids(state: &dhow_core::state::State) -> BTreeMap<String, Option<u32>> {
    let named = state.replicas.iter().map(|(key, replica)| {
        let name = state.replica_name(key).unwrap();
        (name.to_string(), replica.machine.pid)
    });
    named.collect()
}

#[tokio::test(start_paused = true)]
async fn a_killed_agent_goes_on_where_it_was() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(5, &[]))]);
    let before = plane.until("all healthy", |state| healthy(state) == 5).await;
    node.kill().await;
    let ended = host.names()[2].clone();
    host.end(&ended, dhow_driver::driver::Exit::code(9));
    let revision = plane.state().revision;
    let _node = Node::start(&plane, &host, dir.path()).await;
    let after = plane
        .until("the end is told", |state| {
            replicas(state)
                .iter()
                .any(|replica| replica.machine.exit.is_some())
        })
        .await;
    let told: Vec<_> = replicas(&after)
        .iter()
        .filter_map(|replica| replica.machine.exit)
        .collect();
    assert_eq!(told, [Exit::Code(9)]);
    let state = plane
        .until("all healthy again", |state| healthy(state) == 5)
        .await;
    assert_eq!(host.starts(), 6, "only what had ended was started");
    assert_eq!(
        plane.inventories(),
        1,
        "the first one alone: the ledger was there"
    );
    let same = pids(&before)
        .iter()
        .filter(|(name, pid)| pids(&state).get(*name) == Some(*pid))
        .count();
    assert_eq!(same, 4);
    assert!(state.revision > revision);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_lost_its_ledger_tells_everything_and_restarts_nothing() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(3, &[]))]);
    let before = plane.until("all healthy", |state| healthy(state) == 3).await;
    node.kill().await;
    std::fs::remove_dir_all(dir.path().join("agent")).unwrap();
    let node = Node::start(&plane, &host, dir.path()).await;
    plane
        .until("it has told all", |state| {
            plane.inventories() == 2 && healthy(state) == 3
        })
        .await;
    let after = plane.state();
    assert_eq!(pids(&before), pids(&after));
    assert_eq!(host.starts(), 3);
    // What is not assigned any more is found and ended all the same.
    node.kill().await;
    std::fs::remove_dir_all(dir.path().join("agent")).unwrap();
    plane.deploy(&[("web", service(1, &[]))]);
    let _node = Node::start(&plane, &host, dir.path()).await;
    plane
        .until("two are gone", |state| state.replicas.len() == 1)
        .await;
    while host.names().len() > 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_was_cut_off_is_finished() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(2, &[("FAKE_STOP_DELAY_MS", "5000")]))]);
    plane.until("all healthy", |state| healthy(state) == 2).await;
    plane.remove();
    plane
        .until("they are ending", |state| {
            replicas(state)
                .iter()
                .all(|replica| replica.machine.state == ReplicaState::Stopping)
        })
        .await;
    node.kill().await;
    let _node = Node::start(&plane, &host, dir.path()).await;
    plane.until("removed", |state| state.deployments.is_empty()).await;
    while !host.names().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_are_healed_while_nobody_answers() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(2, &[]))]);
    plane.until("all healthy", |state| healthy(state) == 2).await;
    plane.set_reachable(false);
    let name = host.names()[0].clone();
    for _ in 0..2 {
        host.end(&name, dhow_driver::driver::Exit::code(3));
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(host.starts(), 4);
    // Also across a restart of the agent itself.
    node.kill().await;
    host.end(&name, dhow_driver::driver::Exit::code(3));
    let _node = Node::start(&plane, &host, dir.path()).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(host.starts(), 5);
    plane.set_reachable(true);
    let state = plane
        .until("the history is told", |state| {
            replicas(state)
                .iter()
                .any(|replica| replica.machine.restarts == 3)
        })
        .await;
    assert_eq!(healthy(&state), 2);
    assert_eq!(plane.inventories(), 1);
}
