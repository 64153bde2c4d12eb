//! The scaler over a real runtime, by a clock that is moved by hand.

use std::collections::BTreeMap;

use dhow_core::amount::Amount;
use dhow_core::command::{ClusterCommand, DeploymentCommand, NodeCommand, PlanCommand};
use dhow_core::ids::{DeploymentName, DeploymentRevision, NodeId, ServiceKey, ServiceName};
use dhow_core::plan::Plan;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_core::usage::{EndpointRate, NodeUsage};

use super::*;
use crate::clock::FakeClock;
use crate::plane::runtime::{RuntimeHandle, RuntimeOptions, spawn_with};

struct World {
    clock: FakeClock,
    handle: RuntimeHandle,
    cancel: CancellationToken,
}

fn name() -> DeploymentName {
    DeploymentName::new("shop").unwrap()
}

fn web() -> ServiceKey {
    ServiceKey {
        deployment: name(),
        service: ServiceName::new("web").unwrap(),
    }
}

impl World {
    /// Two nodes and an adaptive service that is stable.
    async fn new(min: u32) -> Self {
        let cancel = CancellationToken::new();
        let options = RuntimeOptions {
            planner: Arc::new(|_, _, _| Plan::default()),
            ..RuntimeOptions::default()
        };
        // The runtime has a clock of its own, so that only the scaler sleeps on this one.
        let still = Arc::new(FakeClock::new(0));
        let handle = spawn_with(cancel.clone(), State::default(), still, options);
        let world = Self {
            clock: FakeClock::new(0),
            handle,
            cancel,
        };
        let mut leaders = world.handle.view().leaderships();
        leaders.wait_for(|leads| leads.is_here).await.unwrap();
        if world.handle.view().state().feature_level == 0 {
            world
                .write(Command::Cluster(ClusterCommand::Bootstrap {
                    cluster_id: "c".into(),
                    feature_level: State::FEATURE_LEVEL,
                    nodes_limit: None,
                }))
                .await;
        }
        for node in [1, 2] {
            let info = Arc::new(NodeInfo {
                role: NodeRole::Server,
                api_addr: None,
                os: "linux".into(),
                arch: "x86_64".into(),
                labels: Arc::new(BTreeMap::new()),
                capacity: Amount::ZERO,
                runs_replicas: true,
                tries_settings: true,
                mounts_files: true,
                runs_steps: true,
                mesh_addr: None,
                volumes: Default::default(),
            });
            let node = NodeId(node);
            world
                .write(Command::Node(NodeCommand::Register { node, info }))
                .await;
        }
        let text = format!(
            r#"{{"version":"v1","deployment":"shop","services":{{"web":{{"image":"web:1","scale":{{"mode":"adaptive","min":{min},"max":9,"targets":{{"in_flight":10}}}}}}}}}}"#
        );
        let spec: DeploymentSpec = serde_json::from_str(&text).unwrap();
        world
            .write(Command::Deployment(DeploymentCommand::Deploy {
                spec: Arc::new(spec),
                author: "test".into(),
                wall_unix_secs: 0,
                force: false,
            }))
            .await;
        world
            .write(Command::Plan(PlanCommand::MarkStable {
                deployment: name(),
                revision: DeploymentRevision(1),
            }))
            .await;
        world
    }

    async fn write(&self, command: Command) {
        self.handle.input().write(command, None).await.unwrap();
    }

    fn start(&self) {
        let (view, input) = (self.handle.view(), self.handle.input());
        let clock = Arc::new(self.clock.clone());
        tokio::spawn(run(view, input, clock, self.cancel.clone()));
    }

    fn tell(&self, node: u64, in_flight: u64, waiting: u64) {
        let rate = EndpointRate {
            service: web(),
            endpoint: "http".into(),
            requests_milli: 0,
            errors_milli: 0,
            in_flight,
            waiting,
        };
        let usage = NodeUsage {
            endpoints: vec![rate],
            tells_calls: true,
            ..NodeUsage::default()
        };
        let view = self.handle.view();
        view.observed()
            .used(&view.state(), NodeId(node), usage, self.clock.monotonic_ms());
    }

    fn count(&self) -> u32 {
        let state = self.handle.view().state();
        state
            .service_named(&web().deployment, &web().service)
            .unwrap()
            .count_total()
    }

    async fn comes_to(&self, count: u32) {
        let mut states = self.handle.view().states();
        let web = web();
        let found = |state: &Arc<State>| {
            let service = state.service_named(&web.deployment, &web.service);
            service.is_some_and(|service| service.count_total() == count)
        };
        states.wait_for(found).await.unwrap();
    }

    /// Waits for the next look, and has the one after it come.
    async fn look(&self) {
        let begun = self.clock.sleeps_begun();
        self.clock.step_monotonic(LOOK_MS);
        self.clock.wait_for_sleeps_begun(begun + 1).await;
    }
}

#[tokio::test]
async fn what_all_nodes_tell_raises_the_count() {
    let world = World::new(1).await;
    world.start();
    world.clock.wait_for_sleeps_begun(1).await;
    world.tell(1, 25, 0);
    world.tell(2, 14, 0);
    assert_eq!(world.count(), 1);
    world.look().await;
    world.comes_to(4).await;
    world.cancel.cancel();
}

#[tokio::test]
async fn a_request_that_waits_is_heard_before_the_next_look() {
    let world = World::new(0).await;
    world.start();
    world.clock.wait_for_sleeps_begun(1).await;
    assert_eq!(world.count(), 0);
    // Its first rest begins, and no look is due for a second.
    world.tell(2, 1, 1);
    world.clock.wait_for_sleeps_begun(2).await;
    world.clock.step_monotonic(REST_MS);
    world.comes_to(1).await;
    world.cancel.cancel();
}

#[tokio::test]
async fn figures_that_are_old_or_missing_are_told_apart() {
    let world = World::new(1).await;
    let (view, mut now_ms) = (world.handle.view(), 0);
    let load = |now_ms| {
        let loads = view.observed().loads(&view.state(), now_ms);
        let load = *loads.values().next().unwrap();
        (load.in_flight, load.is_whole)
    };
    world.tell(1, 25, 0);
    assert_eq!(load(now_ms), (25, false), "node 2 has told nothing yet");
    world.tell(2, 14, 0);
    assert_eq!(load(now_ms), (39, true));
    now_ms += 30_001;
    assert_eq!(load(now_ms), (0, false), "both are old");
    world.clock.step_monotonic(now_ms);
    world.tell(2, 3, 0);
    assert_eq!(load(now_ms), (3, false));
    world
        .write(Command::Node(NodeCommand::Lost { node: NodeId(1) }))
        .await;
    assert_eq!(
        load(now_ms),
        (3, true),
        "one that cannot be reached passes nothing"
    );
    // An older version does not say what is under way.
    let usage = NodeUsage::default();
    view.observed().used(&view.state(), NodeId(2), usage, now_ms);
    assert_eq!(load(now_ms), (0, false));
}
