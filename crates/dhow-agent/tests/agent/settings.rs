//! What happens when the settings of running replicas change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dhow_agent::{BackendAddress, Balancer, BalancerFuture};
use dhow_core::ids::{ReplicaName, ServiceKey, ServiceName};
use dhow_core::spec::{Check, Endpoint, HealthSpec, Protocol, ScaleSpec, ServiceSpec, TimeSpan};
use dhow_core::state::{Phase, State};
use dhow_driver::fake::FakeHost;

use super::plane::{Node, Plane, healthy, replicas, service};

/// Three replicas whose check ends with a code.
fn checked(code: u32) -> ServiceSpec {
    let mut spec = service(3, &[]);
    let command = vec!["fake".to_owned(), format!("exit={code}")];
    let mut health = HealthSpec::of(Check::Command { command });
    (health.interval, health.retries) = (TimeSpan::from_secs(1), 2);
    health.start_grace = TimeSpan::ZERO;
    spec.health = Some(health);
    spec.rollout.min_healthy = TimeSpan::from_secs(2);
    spec.rollout.healthy_deadline = TimeSpan::from_secs(30);
    spec
}

fn phase(state: &State) -> Option<Phase> {
    state.deployments.values().next().map(|known| known.phase)
}

/// The check that counts.
fn counts(state: &State) -> Option<HealthSpec> {
    let name = ServiceName::new("web").unwrap();
    let mut services = state.services.values();
    let web = services.find(|service| service.key.service == name)?;
    web.spec()?.health.clone()
}

fn tried(state: &State) -> usize {
    let all = replicas(state);
    all.iter().filter(|replica| replica.trial.is_some()).count()
}

fn passed(state: &State) -> usize {
    let trials = state
        .replicas
        .values()
        .filter_map(|replica| replica.trial.as_ref());
    trials.filter(|trial| trial.passed.is_some()).count()
}

fn pids(state: &State) -> BTreeMap<String, Option<u32>> {
    let named = state.replicas.iter().map(|(key, replica)| {
        let name = state.replica_name(key).unwrap();
        (name.to_string(), replica.machine.pid)
    });
    named.collect()
}

#[tokio::test(start_paused = true)]
async fn a_check_that_does_not_pass_is_tried_by_one_and_takes_nothing_down() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let _node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", checked(0))]);
    let before = plane
        .until("stable", |state| phase(state) == Some(Phase::Stable))
        .await;
    plane.deploy(&[("web", checked(1))]);
    let state = plane
        .until("it is said why", |state| {
            let mut trials = state
                .replicas
                .values()
                .filter_map(|replica| replica.trial.as_ref());
            trials.any(|trial| trial.message.is_some())
        })
        .await;
    assert_eq!((tried(&state), passed(&state), healthy(&state)), (1, 0, 3));
    assert_eq!(
        counts(&state),
        checked(0).health,
        "the check before goes on to count"
    );
    let after = plane
        .until("it is taken back", |state| phase(state) == Some(Phase::Reverted))
        .await;
    assert_eq!((tried(&after), healthy(&after)), (1, 3));
    assert_eq!(counts(&after), checked(0).health);
    assert_eq!(
        (pids(&after), host.starts()),
        (pids(&before), 3),
        "nothing was ended"
    );
}

#[tokio::test(start_paused = true)]
async fn a_check_that_passes_counts_and_an_agent_that_is_killed_meanwhile_goes_on() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", checked(0))]);
    let before = plane
        .until("stable", |state| phase(state) == Some(Phase::Stable))
        .await;
    let mut changed = checked(0);
    if let Some(health) = &mut changed.health {
        health.retries = 7;
    }
    plane.deploy(&[("web", changed.clone())]);
    plane.until("one has passed", |state| passed(state) == 1).await;
    node.kill().await;
    let node = Node::start(&plane, &host, dir.path()).await;
    plane
        .until("another has passed", |state| passed(state) == 2)
        .await;
    // What it knew is gone: it tells all that it has, and what was passed is known all the same.
    node.kill().await;
    std::fs::remove_dir_all(dir.path().join("agent")).unwrap();
    let _node = Node::start(&plane, &host, dir.path()).await;
    let after = plane
        .until("stable again", |state| phase(state) == Some(Phase::Stable))
        .await;
    assert_eq!((passed(&after), counts(&after)), (3, changed.health));
    assert_eq!(
        (pids(&after), host.starts()),
        (pids(&before), 3),
        "nothing was ended"
    );
}

/// The old check would never pass: the new one does, and from then on it decides.
#[tokio::test(start_paused = true)]
async fn a_better_check_mends_what_never_was_healthy() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let _node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", checked(1))]);
    plane
        .until("given up", |state| phase(state) == Some(Phase::Failed))
        .await;
    plane.deploy(&[("web", checked(0))]);
    let state = plane
        .until("stable", |state| phase(state) == Some(Phase::Stable))
        .await;
    assert_eq!((healthy(&state), counts(&state)), (3, checked(0).health));
}

/// A balancer on a host where somebody else has a port.
#[derive(Default)]
struct Ports {
    taken: Mutex<BTreeSet<u16>>,
    /// Who claims what is to come, and what each service has.
    claimed: Mutex<BTreeMap<String, u16>>,
    open: Mutex<BTreeMap<ServiceKey, u16>>,
}

impl Ports {
    fn find(&self, spec: &ServiceSpec) -> Result<Option<u16>, String> {
        let port = spec.endpoints.first().map(|endpoint| endpoint.port);
        match port.filter(|port| self.taken.lock().unwrap().contains(port)) {
            Some(port) => Err(format!("port {port} is somebody else's")),
            None => Ok(port),
        }
    }

    fn claims(&self) -> usize {
        self.claimed.lock().unwrap().len()
    }
}

impl Balancer for Ports {
    fn open<'a>(
        &'a self,
        name: &'a ReplicaName,
        spec: &'a ServiceSpec,
    ) -> BalancerFuture<'a, Result<(), String>> {
        Box::pin(async move {
            if let Some(port) = self.find(spec)? {
                self.open.lock().unwrap().insert(name.service_key(), port);
            }
            Ok(())
        })
    }

    fn claim<'a>(
        &'a self,
        name: &'a ReplicaName,
        next: Option<&'a ServiceSpec>,
    ) -> BalancerFuture<'a, Result<(), String>> {
        Box::pin(async move {
            // Long enough for something else to happen to the replica meanwhile.
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.claimed.lock().unwrap().remove(&name.to_string());
            if let Some(port) = next.map(|next| self.find(next)).transpose()?.flatten() {
                self.claimed.lock().unwrap().insert(name.to_string(), port);
            }
            Ok(())
        })
    }

    fn admit<'a>(&'a self, _: &'a ReplicaName, _: &'a [BackendAddress]) -> BalancerFuture<'a, ()> {
        Box::pin(async {})
    }

    fn withdraw<'a>(&'a self, _: &'a ReplicaName, _: Duration) -> BalancerFuture<'a, ()> {
        Box::pin(async {})
    }

    fn retain<'a>(&'a self, _: &'a BTreeSet<ReplicaName>) -> BalancerFuture<'a, ()> {
        Box::pin(async {})
    }

    fn close<'a>(&'a self, _: &'a ServiceKey) -> BalancerFuture<'a, ()> {
        Box::pin(async {})
    }
}

/// Three replicas that are reached on a port.
fn on(port: u16) -> ServiceSpec {
    ServiceSpec {
        endpoints: vec![Endpoint::new("http", Protocol::Http, port)],
        ..checked(0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_that_cannot_be_had_is_told_and_taken_back() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let ports = Arc::new(Ports::default());
    ports.taken.lock().unwrap().insert(81);
    let balancer = || Arc::clone(&ports) as Arc<dyn Balancer>;
    let node = Node::start_behind(&plane, &host, dir.path(), balancer()).await;
    let open = || ports.open.lock().unwrap().values().copied().collect::<Vec<_>>();
    plane.deploy(&[("web", on(80))]);
    let before = plane
        .until("stable", |state| phase(state) == Some(Phase::Stable))
        .await;
    plane.deploy(&[("web", on(81))]);
    let after = plane
        .until("it is taken back", |state| phase(state) == Some(Phase::Reverted))
        .await;
    let cause = after.deployments.values().next().and_then(|known| {
        let (_, record) = known.history.iter().rev().nth(1)?;
        Some(format!("{record:?}"))
    });
    let cause = cause.unwrap_or_default();
    assert!(cause.contains("port 81 is somebody else's"), "{cause}");
    assert_eq!((tried(&after), passed(&after), healthy(&after)), (1, 0, 3));
    assert_eq!((open(), ports.claims()), (vec![80], 0));

    plane.deploy(&[("web", on(82))]);
    plane.until("one has passed", |state| passed(state) == 1).await;
    assert_eq!(
        (open(), ports.claims()),
        (vec![80], 1),
        "beside the one that counts"
    );
    // A daemon that is started anew claims it again.
    node.kill().await;
    ports.claimed.lock().unwrap().clear();
    let _node = Node::start_behind(&plane, &host, dir.path(), balancer()).await;
    plane
        .until("another has passed", |state| passed(state) == 2)
        .await;
    assert_eq!(ports.claims(), 2);
    let after = plane
        .until("stable again", |state| phase(state) == Some(Phase::Stable))
        .await;
    assert_eq!(
        (pids(&after), host.starts()),
        (pids(&before), 3),
        "nothing was ended"
    );
    plane
        .until("the new port counts", |_| open() == [82] && ports.claims() == 0)
        .await;
}

/// They have both checks to pass at the same time, and the port to open while something else happens.
#[tokio::test(start_paused = true)]
async fn replicas_that_come_with_new_settings_pass_them_too() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let ports = Arc::new(Ports::default());
    let _node = Node::start_behind(&plane, &host, dir.path(), ports).await;
    plane.deploy(&[("web", on(80))]);
    plane
        .until("stable", |state| phase(state) == Some(Phase::Stable))
        .await;
    let mut more = on(81);
    more.scale = ScaleSpec::Fixed { replicas: 5 };
    plane.deploy(&[("web", more)]);
    let state = plane
        .until("it is decided", |state| {
            matches!(phase(state), Some(Phase::Stable | Phase::Reverted))
        })
        .await;
    assert_eq!((phase(&state), healthy(&state)), (Some(Phase::Stable), 5));
}
