//! Configs that change under running replicas, and under replicas that end meanwhile.

use std::path::Path;

use dhow_core::ids::ReplicaName;
use dhow_core::spec::{FileMount, ImageSpec, OnChange, ServiceSpec, TimeSpan};
use dhow_core::state::{Phase, State};
use dhow_driver::driver::{Driver, LogSource};
use dhow_driver::fake::FakeHost;

use super::plane::{Node, Plane, service};

/// Two containers that are told of another content of their config.
fn told() -> ServiceSpec {
    let mut spec = service(2, &[]);
    spec.runtime = None;
    spec.image = Some(ImageSpec::named("web"));
    spec.configs = vec![FileMount {
        source: "app.conf".into(),
        target: Some("/etc/app/app.conf".into()),
        on_change: OnChange::Signal,
        signal: Some("SIGHUP".into()),
        ..FileMount::default()
    }];
    spec.rollout.min_healthy = TimeSpan::from_secs(2);
    spec.rollout.healthy_deadline = TimeSpan::from_secs(60);
    spec
}

fn deploy(plane: &Plane, content: &str) {
    plane.deploy_with(&[("app.conf", content.as_bytes())], &[("web", told())]);
}

/// Stable at this revision.
fn is_stable(state: &State, revision: u64) -> bool {
    let mut deployments = state.deployments.values();
    deployments.any(|known| known.phase == Phase::Stable && known.revision.0 == revision)
}

fn names(state: &State) -> Vec<ReplicaName> {
    let names = state.replicas.keys().map(|key| state.replica_name(key).unwrap());
    names.collect()
}

/// What a replica sees.
fn seen(dir: &Path, name: &ReplicaName) -> String {
    let folder = dhow_driver::shim::replica_dirs::dir_name(name);
    std::fs::read_to_string(dir.join("files").join(folder).join("0/app.conf")).unwrap()
}

/// How often a replica was told.
async fn signals(host: &FakeHost, name: &ReplicaName) -> usize {
    let log = host.driver().logs(name).await.unwrap();
    let lines = log.tail(LogSource::TAIL_MAX_LINES).await.unwrap();
    lines.iter().filter(|line| line.text == "got SIGHUP").count()
}

#[tokio::test(start_paused = true)]
async fn another_content_is_seen_and_told_by_one_after_the_other() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    deploy(&plane, "one");
    let first = plane.until("stable", |state| is_stable(state, 1)).await;
    let starts = host.starts();
    deploy(&plane, "two");
    let one_tries = |state: &State| state.replicas.values().any(|replica| replica.trial.is_some());
    let state = plane.until("one sees it", one_tries).await;
    let tries = state.replicas.values().filter(|replica| replica.trial.is_some());
    assert_eq!(tries.count(), 1);
    plane.until("all see it", |state| is_stable(state, 2)).await;
    // A daemon that comes anew finds everything as it should be.
    node.kill().await;
    let node = Node::start(&plane, &host, dir.path()).await;
    deploy(&plane, "three");
    plane.until("all see the next", |state| is_stable(state, 3)).await;
    for name in names(&first) {
        assert_eq!(
            (seen(dir.path(), &name).as_str(), signals(&host, &name).await),
            ("three", 2)
        );
    }
    assert_eq!(host.starts(), starts, "nothing was started again");
    plane.remove();
    let files = dir.path().join("files");
    let is_gone = |state: &State| state.deployments.is_empty() && !files.exists();
    plane.until("what replicas saw goes with them", is_gone).await;
    node.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_had_is_said_once_and_taken_back() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    deploy(&plane, "one");
    let first = plane.until("stable", |state| is_stable(state, 1)).await;
    plane.gives_files(false);
    deploy(&plane, "two");
    let why = |state: &State| {
        let trials = state
            .replicas
            .values()
            .filter_map(|replica| replica.trial.clone());
        trials.filter_map(|trial| trial.message).next()
    };
    let state = plane.until("it is said why", |state| why(state).is_some()).await;
    assert_eq!(
        why(&state).as_deref(),
        Some("the control plane did not give all that its files hold")
    );
    // It does not come in time: what was good counts again, and nobody has seen or heard anything.
    plane
        .until("put back", |state| {
            state
                .deployments
                .values()
                .any(|known| known.phase == Phase::Reverted)
        })
        .await;
    for name in names(&first) {
        assert_eq!(
            (seen(dir.path(), &name).as_str(), signals(&host, &name).await),
            ("one", 0)
        );
    }
    node.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_ends_during_the_change_starts_with_the_new_content() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    deploy(&plane, "one");
    plane.until("stable", |state| is_stable(state, 1)).await;
    plane.gives_files(false);
    deploy(&plane, "two");
    let tries = |state: &State| {
        let mut trying = state
            .replicas
            .iter()
            .filter(|(_, replica)| replica.trial.is_some());
        trying.next().and_then(|(key, _)| state.replica_name(key))
    };
    let state = plane.until("one tries", |state| tries(state).is_some()).await;
    let name = tries(&state).unwrap();
    host.end(&name, dhow_driver::driver::Exit::code(1));
    plane.gives_files(true);
    plane.until("all see it", |state| is_stable(state, 2)).await;
    assert_eq!(seen(dir.path(), &name), "two");
    assert_eq!(signals(&host, &name).await, 0, "it has read it at its start");
    node.end().await;
}
