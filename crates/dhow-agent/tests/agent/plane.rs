//! The control plane of a test, and a node of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dhow_agent::{
    Agent, AgentHandle, AgentOptions, Balancer, Drivers, FileContents, FileKey, Heartbeat, HeartbeatAnswer,
    Highest, KnownDirectory, NoBalancer, OpenRollout, Orders, Pace, Report, ReportAnswer, ReportBody,
    Returning, RolloutId, Session, SessionError, SessionFuture,
};
use dhow_core::amount::Amount;
use dhow_core::assignment::{Assignment, assignment_since};
use dhow_core::command::{ClusterCommand, Command, DeploymentCommand, Entry, NodeCommand, Outcome, Refused};
use dhow_core::ids::{DeploymentName, NodeId, Revision, ServiceName, Term};
use dhow_core::mirror;
use dhow_core::plan::{PlanCache, plan_next};
use dhow_core::spec::{CommandSpec, ConfigSpec, DeploymentSpec, Runtime, ServiceSpec};
use dhow_core::state::{NodeInfo, NodeRole, Replica, State};
use dhow_core::step::step;
use dhow_core::time::ClusterTime;
use dhow_core::usage::NodeUsage;
use dhow_driver::fake::FakeHost;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub const NODE: NodeId = NodeId(1);

/// A control plane inside the test: a state that the test changes by commands, planned and told to the agent as a
/// server would.
pub struct Plane {
    inner: Mutex<PlaneState>,
    changed: watch::Sender<u64>,
    usage: watch::Sender<NodeUsage>,
    began: Instant,
}

struct PlaneState {
    state: State,
    cache: PlanCache,
    reachable: bool,
    hears_heartbeats: bool,
    gives_files: bool,
    inventories: u32,
    /// How often the node has asked what to run.
    asked: u32,
    term: Term,
    /// Rollouts that are handed to the node until it names them, and those that it named last.
    open: Vec<OpenRollout>,
    named: Vec<RolloutId>,
    /// The rollouts of its reports.
    told: Vec<Option<RolloutId>>,
}

impl Plane {
    pub fn new() -> Arc<Self> {
        Self::in_term(1)
    }

    pub fn in_term(term: u64) -> Arc<Self> {
        let plane = Arc::new(Self {
            inner: Mutex::new(PlaneState {
                state: State::default(),
                cache: PlanCache::default(),
                reachable: true,
                hears_heartbeats: true,
                gives_files: true,
                inventories: 0,
                asked: 0,
                term: Term(term),
                open: Vec::new(),
                named: Vec::new(),
                told: Vec::new(),
            }),
            changed: watch::Sender::new(0),
            usage: watch::Sender::default(),
            began: Instant::now(),
        });
        plane.write(Command::Cluster(ClusterCommand::Bootstrap {
            cluster_id: "test".into(),
            feature_level: State::FEATURE_LEVEL,
            nodes_limit: Some(State::NODES_LIMIT),
        }));
        plane.write(Command::Cluster(ClusterCommand::TermBegan {
            leader: NODE,
            wall_unix_ms: None,
        }));
        let info = NodeInfo {
            role: NodeRole::Peer,
            api_addr: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Arc::default(),
            capacity: Amount {
                cpu_milli: 4_000,
                memory_bytes: 1 << 33,
            },
            runs_replicas: true,
            tries_settings: true,
            mounts_files: true,
            runs_steps: true,
            volumes: dhow_core::spec::VolumeSupport::Sized,
            mesh_addr: None,
        };
        plane.write(Command::Node(NodeCommand::Register {
            node: NODE,
            info: Arc::new(info),
        }));
        plane
    }

    fn now(&self) -> ClusterTime {
        ClusterTime(u64::try_from(self.began.elapsed().as_millis()).unwrap())
    }

    /// Applies a command and everything that the planner makes of it.
    pub fn write(&self, command: Command) -> Outcome {
        self.try_write(command).unwrap()
    }

    fn try_write(&self, command: Command) -> Result<Outcome, Refused> {
        let mut inner = self.inner.lock().unwrap();
        let outcome = inner.apply(command, self.now());
        inner.plan(self.now());
        let revision = inner.state.revision.0;
        drop(inner);
        self.changed.send_replace(revision);
        outcome
    }

    pub fn set_reachable(&self, reachable: bool) {
        self.inner.lock().unwrap().reachable = reachable;
    }

    /// From now on heartbeats are not answered.
    pub fn refuse_heartbeats(&self) {
        self.inner.lock().unwrap().hears_heartbeats = false;
    }

    pub fn inventories(&self) -> u32 {
        self.inner.lock().unwrap().inventories
    }

    pub fn asked(&self) -> u32 {
        self.inner.lock().unwrap().asked
    }

    /// Follows what the node says that it uses.
    pub fn usages(&self) -> watch::Receiver<NodeUsage> {
        self.usage.subscribe()
    }

    /// The control plane is put back to an earlier state.
    pub fn put_back(&self, state: State) {
        self.inner.lock().unwrap().state = state;
    }

    pub fn open(&self, open: Vec<OpenRollout>) {
        self.inner.lock().unwrap().open = open;
    }

    pub fn named(&self) -> Vec<RolloutId> {
        self.inner.lock().unwrap().named.clone()
    }

    pub fn told(&self) -> Vec<Option<RolloutId>> {
        self.inner.lock().unwrap().told.clone()
    }

    pub fn state(&self) -> State {
        self.inner.lock().unwrap().state.clone()
    }

    pub fn deploy(&self, services: &[(&str, ServiceSpec)]) {
        self.deploy_with(&[], services);
    }

    /// A deployment with configs, by name.
    pub fn deploy_with(&self, configs: &[(&str, &[u8])], services: &[(&str, ServiceSpec)]) {
        let configs = configs
            .iter()
            .map(|(name, content)| ((*name).to_owned(), ConfigSpec::of_bytes(content.to_vec())));
        let services = services
            .iter()
            .map(|(name, spec)| (ServiceName::new(name).unwrap(), Arc::new(spec.clone())));
        let spec = DeploymentSpec {
            version: Default::default(),
            deployment: DeploymentName::new("shop").unwrap(),
            services: services.collect(),
            scaled: Default::default(),
            configs: configs.collect(),
        };
        self.write(Command::Deployment(DeploymentCommand::Deploy {
            spec: Arc::new(spec),
            author: "test".into(),
            wall_unix_secs: 0,
            force: false,
        }));
    }

    /// From now on the node gets contents of files, or none.
    pub fn gives_files(&self, gives: bool) {
        self.inner.lock().unwrap().gives_files = gives;
    }

    pub fn remove(&self) {
        let deployment = DeploymentName::new("shop").unwrap();
        self.write(Command::Deployment(DeploymentCommand::Remove { deployment }));
    }

    /// Waits until the state is as wanted; the planner looks again as time passes.
    pub async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) -> State {
        let mut changed = self.changed.subscribe();
        let deadline = Instant::now() + std::time::Duration::from_secs(600);
        loop {
            changed.borrow_and_update();
            let state = self.state();
            if wanted(&state) {
                return state;
            }
            assert!(
                Instant::now() < deadline,
                "never came: {what}\n{:#?}",
                state.replicas
            );
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(std::time::Duration::from_millis(500)) => {
                    let mut inner = self.inner.lock().unwrap();
                    inner.plan(self.now());
                    let revision = inner.state.revision.0;
                    drop(inner);
                    self.changed.send_replace(revision);
                }
            }
        }
    }

    /// What is open and not among these.
    fn unnamed(&self, named: &[RolloutId]) -> Vec<OpenRollout> {
        let open = self.inner.lock().unwrap().open.clone().into_iter();
        open.filter(|open| !named.contains(&open.id)).collect()
    }

    fn check_reachable(&self) -> Result<(), SessionError> {
        match self.inner.lock().unwrap().reachable {
            true => Ok(()),
            false => Err(SessionError::Unavailable("cut off".into())),
        }
    }
}

impl PlaneState {
    fn apply(&mut self, command: Command, now: ClusterTime) -> Result<Outcome, Refused> {
        let entry = Entry {
            time: now,
            term: self.term,
            request: None,
            command,
        };
        step(&mut self.state, &entry, &mut ())
    }

    fn plan(&mut self, now: ClusterTime) {
        for _ in 0..100 {
            let plan = plan_next(&self.state, &mut self.cache, now);
            if plan.commands.is_empty() {
                return;
            }
            for command in plan.commands {
                let _ = self.apply(Command::Plan(command), now);
            }
        }
        panic!("the planner does not come to rest");
    }
}

impl Session for Plane {
    fn report(&self, report: Report) -> SessionFuture<'_, ReportAnswer> {
        Box::pin(async move {
            self.check_reachable()?;
            let named = report.rollouts.clone();
            let command = {
                let mut inner = self.inner.lock().unwrap();
                inner.told.push(report.rollouts.first().cloned());
                if let ReportBody::Inventory { .. } = &report.body {
                    inner.inventories += 1;
                }
                mirror::report_command(&inner.state, NODE, report.incarnation, report.body)
            };
            match self.try_write(Command::Agent(command)) {
                Ok(Outcome::Reported {
                    durable_seq,
                    diverged,
                }) => {
                    assert!(diverged.is_empty(), "the mirror diverged: {diverged:?}");
                    Ok(ReportAnswer::Durable {
                        seq: durable_seq,
                        inventory_wanted: false,
                        open: self.unnamed(&named),
                    })
                }
                Ok(other) => panic!("{other:?}"),
                Err(refused) => Ok(ReportAnswer::of_refusal(&refused).unwrap_or_else(|| panic!("{refused}"))),
            }
        })
    }

    fn heartbeat(&self, beat: Heartbeat) -> SessionFuture<'_, HeartbeatAnswer> {
        Box::pin(async move {
            self.check_reachable()?;
            let state = self.state();
            let differs = beat.digest != mirror::digest(&state, NODE);
            let mut inner = self.inner.lock().unwrap();
            if !inner.hears_heartbeats {
                return Err(SessionError::Unavailable("deaf".into()));
            }
            inner.named = beat.rollouts.clone();
            drop(inner);
            Ok(HeartbeatAnswer {
                inventory_wanted: false,
                replay_from: differs.then(|| state.node(NODE).unwrap().session.seq),
                open: self.unnamed(&beat.rollouts),
            })
        })
    }

    fn usage(&self, usage: NodeUsage, _is_urgent: bool) {
        self.usage.send_replace(usage);
    }

    fn heard(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }

    fn secrets<'a>(&'a self, names: &'a [String]) -> SessionFuture<'a, BTreeMap<String, String>> {
        Box::pin(async move {
            let known = names.iter().filter(|name| *name == "known");
            Ok(known.map(|name| (name.clone(), "its value".to_owned())).collect())
        })
    }

    /// One at a time: whoever asks has to ask again.
    fn files<'a>(&'a self, wanted: &'a [FileKey]) -> SessionFuture<'a, FileContents> {
        Box::pin(async move {
            self.check_reachable()?;
            if !self.inner.lock().unwrap().gives_files {
                return Ok(FileContents::new());
            }
            let state = self.state();
            let found = wanted.iter().find_map(|key| match key {
                FileKey::Config(hash) => {
                    let mut deployments = state.deployments.values();
                    let content = deployments.find_map(|deployment| deployment.contents.get(hash))?;
                    Some((key.clone(), content.to_vec()))
                }
                FileKey::Secret { name, version } => {
                    let sealed = state.secrets.get(name.as_str())?.sealed_at(*version)?;
                    Some((key.clone(), sealed.to_vec()))
                }
            });
            Ok(found.into_iter().collect())
        })
    }

    fn pace(&self) -> watch::Receiver<Pace> {
        watch::channel(Pace::default()).1
    }

    fn report_gap(&self) -> Duration {
        Duration::ZERO
    }
}

impl Orders for Plane {
    fn assignments(&self, last: Option<Revision>) -> SessionFuture<'_, Assignment> {
        Box::pin(async move {
            let mut changed = self.changed.subscribe();
            self.inner.lock().unwrap().asked += 1;
            loop {
                changed.borrow_and_update();
                self.check_reachable()?;
                if let Some(update) = assignment_since(&self.state(), NODE, last) {
                    return Ok(update);
                }
                changed.changed().await.unwrap();
            }
        })
    }

    fn acted_on(&self, _highest: &Highest) {}

    /// Nobody tells of services here.
    fn directory(&self) -> watch::Receiver<Option<Arc<KnownDirectory>>> {
        watch::channel(None).1
    }
}

/// An agent that runs; ended by [`Node::kill`], which leaves the host as it is, or in order by [`Node::end`].
pub struct Node {
    pub handle: AgentHandle,
    cancel: CancellationToken,
    task: JoinHandle<Result<(), dhow_agent::AgentError>>,
}

impl Node {
    /// A node that nobody else could take anything over from.
    pub async fn start(plane: &Arc<Plane>, host: &FakeHost, dir: &Path) -> Self {
        Self::start_behind(plane, host, dir, Arc::new(NoBalancer)).await
    }

    /// The same behind a balancer of the test's own.
    pub async fn start_behind(
        plane: &Arc<Plane>,
        host: &FakeHost,
        dir: &Path,
        balancer: Arc<dyn Balancer>,
    ) -> Self {
        Self::open(plane, host, dir, Returning::Alone, balancer).await
    }

    /// A node of a cluster, on a host that was started under this id.
    pub async fn start_in(plane: &Arc<Plane>, host: &FakeHost, dir: &Path, boot_id: &str) -> Self {
        let boot_id = boot_id.to_owned();
        let returning = Returning::Confirmed { boot_id };
        Self::open(plane, host, dir, returning, Arc::new(NoBalancer)).await
    }

    async fn open(
        plane: &Arc<Plane>,
        host: &FakeHost,
        dir: &Path,
        returning: Returning,
        balancer: Arc<dyn Balancer>,
    ) -> Self {
        let agent = Agent::open(AgentOptions {
            node: NODE,
            mesh: None,
            dir: dir.join("agent"),
            volumes_dir: dir.join("volumes"),
            files_dir: dir.join("files"),
            drivers: Drivers::same(Arc::new(host.driver())),
            balancer,
            session: Arc::clone(plane) as Arc<dyn Session>,
            orders: Arc::clone(plane) as Arc<dyn Orders>,
            policy: Default::default(),
            returning,
        });
        let agent = agent.await.unwrap();
        let handle = agent.handle();
        let cancel = CancellationToken::new();
        let task = tokio::spawn(agent.run(cancel.clone()));
        Self { handle, cancel, task }
    }

    /// As a daemon that stops does.
    pub async fn end(self) {
        self.cancel.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// As `kill -9` does: no goodbye. Its runners end with it.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// A service of the fake host, told what to do by its variables.
pub fn service(replicas: u32, env: &[(&str, &str)]) -> ServiceSpec {
    let env = env
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ServiceSpec {
        runtime: Some(Runtime::Process),
        command: Some(CommandSpec {
            args: Some(vec!["run".into()]),
            ..CommandSpec::default()
        }),
        scale: dhow_core::spec::ScaleSpec::Fixed { replicas },
        env: env.collect(),
        ..ServiceSpec::default()
    }
}

pub fn replicas(state: &State) -> Vec<&Replica> {
    state.replicas.values().map(AsRef::as_ref).collect()
}

pub fn healthy(state: &State) -> usize {
    replicas(state)
        .iter()
        .filter(|replica| replica.is_healthy())
        .count()
}
