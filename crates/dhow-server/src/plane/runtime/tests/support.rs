//! What the tests share: a runtime on a temporary directory, a disk that can be held up or made to fail, and
//! commands.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use dhow_core::amount::Amount;
use dhow_core::command::{
    ClusterCommand, Command, DeploymentCommand, NodeCommand, Outcome, Placement, PlanCommand, RequestId,
};
use dhow_core::ids::{DeploymentName, DeploymentRevision, NodeId, ServiceName};
use dhow_core::plan::Plan;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::{NodeInfo, NodeRole, Phase, State};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::clock::FakeClock;
use crate::plane::log::store::{Disk, DiskOp, StoreOptions};
use crate::plane::runtime::{
    Applied, Drained, OpenedRuntime, RuntimeHandle, RuntimeOptions, WriteError, drain, open_local, spawn_with,
};

/// Noon of some day.
pub const WALL_UNIX_MS: i64 = 1_800_000_000_000;

/// Long enough that only a moved clock reaches it.
pub const DEADLINE_MS: u64 = 30_000;

/// A disk that does as it is told.
#[derive(Clone, Default)]
pub struct Gate {
    inner: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Default)]
struct GateState {
    is_closed: bool,
    is_broken: bool,
    held: usize,
}

impl Gate {
    /// From now on nothing becomes durable, and whoever asks waits.
    pub fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    pub fn open(&self) {
        self.change(|state| state.is_closed = false);
    }

    /// From now on the disk fails.
    pub fn break_disk(&self) {
        self.change(|state| state.is_broken = true);
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.inner.0.lock().unwrap());
        self.inner.1.notify_all();
    }

    /// Waits until the log's writer waits for the disk.
    pub async fn wait_until_held(&self) {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || {
            let state = inner.0.lock().unwrap();
            drop(inner.1.wait_while(state, |state| state.held == 0).unwrap());
        })
        .await
        .unwrap();
    }

    fn pass(&self) -> io::Result<()> {
        let mut state = self.inner.0.lock().unwrap();
        state.held += 1;
        self.inner.1.notify_all();
        state = self.inner.1.wait_while(state, |state| state.is_closed).unwrap();
        state.held -= 1;
        match state.is_broken {
            true => Err(io::Error::other("the disk is broken")),
            false => Ok(()),
        }
    }

    fn disk(&self) -> Disk {
        let gate = self.clone();
        Disk::with_hook(Arc::new(move |op, _| match op {
            DiskOp::Sync => gate.pass(),
            DiskOp::Allocate | DiskOp::Write | DiskOp::Rename | DiskOp::SyncDir | DiskOp::Remove => Ok(()),
        }))
    }
}

/// Opens what is in a directory, with a planner that does nothing: tests plan by hand.
pub fn open(dir: &Path, gate: &Gate) -> OpenedRuntime {
    let store = StoreOptions {
        disk: gate.disk(),
        segment_size_bytes: 64 * 1024,
        max_record_bytes: 16 * 1024,
        ..StoreOptions::default()
    };
    let mut opened = open_local(dir, store).unwrap();
    opened.options.planner = Arc::new(|_, _, _| Plan::default());
    opened.options.plan_debounce_ms = 0;
    opened
}

/// A running server.
pub struct Server {
    pub handle: RuntimeHandle,
    pub cancel: CancellationToken,
    pub clock: FakeClock,
    pub gate: Gate,
}

impl Server {
    /// Starts on a directory.
    pub fn start(dir: &TempDir) -> Self {
        Self::start_changed(dir, |_| {})
    }

    pub fn start_changed(dir: &TempDir, change: impl FnOnce(&mut RuntimeOptions)) -> Self {
        let gate = Gate::default();
        let mut opened = open(dir.path(), &gate);
        change(&mut opened.options);
        Self::run(opened.state, opened.options, gate)
    }

    /// Starts without a disk, at the level of a new cluster.
    pub fn start_volatile(change: impl FnOnce(&mut RuntimeOptions)) -> Self {
        let mut options = RuntimeOptions {
            planner: Arc::new(|_, _, _| Plan::default()),
            plan_debounce_ms: 0,
            directory_quiet_ms: 0,
            ..RuntimeOptions::default()
        };
        change(&mut options);
        let state = State {
            feature_level: State::FEATURE_LEVEL,
            ..State::default()
        };
        Self::run(state, options, Gate::default())
    }

    pub fn run(state: State, options: RuntimeOptions, gate: Gate) -> Self {
        let (cancel, clock) = (CancellationToken::new(), FakeClock::new(WALL_UNIX_MS));
        let handle = spawn_with(cancel.clone(), state, Arc::new(clock.clone()), options);
        Self {
            handle,
            cancel,
            clock,
            gate,
        }
    }

    pub fn state(&self) -> Arc<State> {
        self.handle.view().state()
    }

    /// Waits until the state is so.
    pub async fn wait_for(&self, mut is_so: impl FnMut(&State) -> bool) -> Arc<State> {
        let mut states = self.handle.view().states();
        states.wait_for(|state| is_so(state)).await.unwrap().clone()
    }

    pub async fn write(&self, command: Command) -> Result<Applied, WriteError> {
        self.handle.input().write(command, None).await
    }

    pub async fn write_once(&self, command: Command, request: RequestId) -> Result<Applied, WriteError> {
        self.handle.input().write(command, Some(request)).await
    }

    /// Places every wanted slot of a service on a node, as a planner would.
    pub async fn place(&self, service: &str, node: NodeId) -> Outcome {
        let place = place(&self.state(), service, node);
        self.write(Command::Plan(place)).await.unwrap().outcome
    }

    /// Ends in good order.
    pub async fn stop(self) -> Drained {
        self.cancel.cancel();
        drain(self.handle.into_join_handles(), &self.clock, DEADLINE_MS).await
    }
}

pub fn shop() -> DeploymentName {
    DeploymentName::new("shop").unwrap()
}

pub fn register(node: u64) -> Command {
    let info = NodeInfo {
        role: NodeRole::Peer,
        api_addr: None,
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::default(),
        capacity: Amount {
            cpu_milli: 8_000,
            memory_bytes: 8 << 30,
        },
        runs_replicas: true,
        tries_settings: true,
        mounts_files: true,
        runs_steps: true,
        volumes: dhow_core::spec::VolumeSupport::Sized,
        mesh_addr: None,
    };
    Command::Node(NodeCommand::Register {
        node: NodeId(node),
        info: Arc::new(info),
    })
}

pub fn spec(replicas: u32, image: &str) -> DeploymentSpec {
    let text = format!(
        r#"{{"version":"v1","deployment":"shop","services":{{"web":{{"image":"{image}","scale":{{"mode":"fixed","replicas":{replicas}}}}}}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

pub fn deploy(replicas: u32) -> Command {
    Command::Deployment(DeploymentCommand::Deploy {
        spec: Arc::new(spec(replicas, "nginx:1.27")),
        author: "test".into(),
        wall_unix_secs: WALL_UNIX_MS / 1_000,
        force: false,
    })
}

pub fn place(state: &State, service: &str, node: NodeId) -> PlanCommand {
    let service = state
        .service_named(&shop(), &ServiceName::new(service).unwrap())
        .unwrap();
    let eligibility = state.node(node).unwrap().eligibility;
    PlanCommand::Place {
        service: service.id,
        generation: service.target,
        placements: service
            .wanted_slots()
            .map(|slot| Placement {
                slot,
                node,
                eligibility,
            })
            .collect(),
    }
}

pub fn mark_stable() -> Command {
    Command::Plan(PlanCommand::MarkStable {
        deployment: shop(),
        revision: DeploymentRevision(1),
    })
}

pub fn phase(state: &State) -> Option<Phase> {
    state.deployment(&shop()).map(|deployment| deployment.phase)
}

pub fn set_secret(number: usize) -> Command {
    Command::Cluster(ClusterCommand::SetSecret {
        name: format!("secret-{number}").into(),
        sealed: Arc::from([0; 8].as_slice()),
    })
}
