//! What happens to replicas when the agent, or its way to the control plane, does not live.

use std::collections::BTreeMap;
use std::time::Duration;

use dhow_core::replica::{Exit, ReplicaState};
use dhow_core::spec::{Offline, RType, ScaleSpec};
use dhow_driver::driver::UnknownExit;
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

async fn waiting(node: &Node) -> Vec<String> {
    let present = node.handle.present().await.into_iter();
    let waiting = present.filter(|replica| replica.waits);
    waiting.map(|replica| replica.name.service.to_string()).collect()
}

async fn until_started(host: &FakeHost, starts: u64) {
    while host.starts() < starts {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_a_node_waits_for_a_server_with_what_may_run_elsewhere() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start_in(&plane, &host, dir.path(), "first").await;
    let mut keep = service(1, &[]);
    keep.offline = Offline::Run;
    let mut watch = service(1, &[]);
    (watch.rtype, watch.scale) = (RType::System, ScaleSpec::default());
    plane.deploy(&[("keep", keep), ("watch", watch), ("web", service(2, &[]))]);
    plane.until("all healthy", |state| healthy(state) == 4).await;
    node.kill().await;
    assert_eq!(host.starts(), 4);
    let reboot = |host: &FakeHost| {
        let ended = dhow_driver::driver::Exit::unknown(UnknownExit::HostRestarted);
        host.names().iter().for_each(|name| host.end(name, ended));
    };

    // Cut off: what nobody else can run, and what is to run twice rather than not at all, is started.
    reboot(&host);
    plane.set_reachable(false);
    let node = Node::start_in(&plane, &host, dir.path(), "second").await;
    until_started(&host, 6).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(host.starts(), 6, "the others wait");
    assert_eq!(waiting(&node).await, ["web", "web"]);

    // A daemon that is restarted meanwhile waits too, and leaves alone what runs.
    node.kill().await;
    let node = Node::start_in(&plane, &host, dir.path(), "second").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(host.starts(), 6);
    assert_eq!(waiting(&node).await, ["web", "web"]);

    plane.set_reachable(true);
    until_started(&host, 8).await;
    plane
        .until("all healthy again", |state| healthy(state) == 4)
        .await;
    assert!(waiting(&node).await.is_empty());

    // Within the same start of the host nobody is asked.
    node.kill().await;
    plane.set_reachable(false);
    let web = host
        .names()
        .into_iter()
        .find(|name| name.service.as_str() == "web");
    host.end(&web.unwrap(), dhow_driver::driver::Exit::code(9));
    let _node = Node::start_in(&plane, &host, dir.path(), "second").await;
    until_started(&host, 9).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_alone_asks_nobody() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(1, &[]))]);
    plane.until("healthy", |state| healthy(state) == 1).await;
    node.kill().await;
    let name = host.names()[0].clone();
    host.end(
        &name,
        dhow_driver::driver::Exit::unknown(UnknownExit::HostRestarted),
    );
    plane.set_reachable(false);
    let _node = Node::start(&plane, &host, dir.path()).await;
    until_started(&host, 2).await;
}
