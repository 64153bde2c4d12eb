//! One entry of every command, and a small state. Kept as they are: the goldens are their bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::amount::Amount;
use dhow_core::command::{
    AgentCommand, AgentEvent, ClusterCommand, Command, DeploymentCommand, Entry, InventoryItem, JobCommand,
    ManifestSpec, NodeCommand, Placement, PlanCommand, ReplicaMove, RequestId, RolloutAction, ScaleChange,
    StopReason,
};
use dhow_core::ids::{
    DeploymentName, DeploymentRevision, Generation, NodeId, ReplicaKey, Revision, RoleId, RoleName,
    ServiceId, ServiceName, SettingsId, Slot, Term,
};
use dhow_core::replica::{Exit, Machine, ReplicaEvent, ReplicaState};
use dhow_core::rollout::{Counted, Figures, Judgement, Verdict};
use dhow_core::scaler::{Load, Resize};
use dhow_core::spec::{DeploymentSpec, TimeSpan};
use dhow_core::state::{
    ApiRole, ApiToken, Drain, EventPlace, ManifestVersion, NodeInfo, NodeRole, Notice, NotifySettings,
    Request, RunEnd, RunOutcome, ScheduleRun, State, Stopped,
};
use dhow_core::step::step;
use dhow_core::time::ClusterTime;

/// Makes a function that names the variant of a command, and the list of all names: a new variant does not
/// compile until it is listed here, and then the goldens ask for its sample.
macro_rules! variants {
    ($name:ident, $all:ident, $type:ident: $($variant:ident),*) => {
        fn $name(command: &$type) -> &'static str {
            match command {
                $($type::$variant { .. } => concat!(stringify!($type), "::", stringify!($variant)),)*
            }
        }

        const $all: &[&str] = &[$(concat!(stringify!($type), "::", stringify!($variant)),)*];
    };
}

variants!(cluster_name, CLUSTER, ClusterCommand:
    Bootstrap, TermBegan, IssueToken, RevokeToken, UseToken, SetSecret, RemoveSecret,
    IssueApiToken, RevokeApiToken, RotateWorkerCa, RaiseFeatureLevel, KeepServerIds, SetSource, RemoveSource,
    EpochBegan, SetNotify, RemoveNotify, NotifyTold);
variants!(node_name, NODE, NodeCommand:
    Register, Lost, Back, SetDrain, Label, Remove, TellsGenerations, Drain, InternalTokenShown);
variants!(deployment_name, DEPLOYMENT, DeploymentCommand:
    Deploy, Remove, Scale, Restart, Rollback, ApplyManifests, RecordConflicted, StartRun, Steer, Stop, Start,
    BindVolume, Rebalance, Hold, EndHold, Suspending);
variants!(plan_name, PLAN, PlanCommand:
    Place, Stop, Forget, ForgetService, OpenGeneration, Release, MarkStable, Fail, DrainFinished, CronFired,
    TrySettings, AdoptSettings, Job, JudgeCanary, Resize);
variants!(agent_name, AGENT, AgentCommand: Report, Inventory);

pub fn name_of(command: &Command) -> &'static str {
    match command {
        Command::Cluster(command) => cluster_name(command),
        Command::Node(command) => node_name(command),
        Command::Deployment(command) => deployment_name(command),
        Command::Plan(command) => plan_name(command),
        Command::Agent(command) => agent_name(command),
    }
}

pub fn all_names() -> Vec<&'static str> {
    [CLUSTER, NODE, DEPLOYMENT, PLAN, AGENT].concat()
}

pub fn shop() -> DeploymentName {
    DeploymentName::new("shop").unwrap()
}

fn web() -> ServiceName {
    ServiceName::new("web").unwrap()
}

pub fn spec() -> Arc<DeploymentSpec> {
    let text = r#"{"version":"v1","deployment":"shop","services":{"web":{"image":"nginx:1.27","scale":{"mode":"fixed","replicas":2}}}}"#;
    Arc::new(serde_json::from_str(text).unwrap())
}

/// A deployment whose service sees a config and a secret.
fn spec_with_files() -> Arc<DeploymentSpec> {
    let text = r#"{"version":"v1","deployment":"site","configs":{"app.conf":{"content":"level = 1"},"logo":{"content_base64":"/wAB"}},
        "services":{"web":{"image":"nginx:1.27",
        "configs":[{"source":"app.conf","target":"/etc/app/app.conf","mode":"0440","uid":1000,"on_change":"signal","signal":"SIGHUP"}],
        "secrets":[{"source":"db-password","on_change":"none"}]}}}"#;
    Arc::new(serde_json::from_str(text).unwrap())
}

/// A deployment that brings contents with it.
pub fn entry_with_files() -> Entry {
    entry(Command::Deployment(DeploymentCommand::Deploy {
        spec: spec_with_files(),
        author: "operator".into(),
        wall_unix_secs: 1_700_000_000,
        force: false,
    }))
}

pub fn info() -> Arc<NodeInfo> {
    Arc::new(NodeInfo {
        role: NodeRole::Worker,
        api_addr: Some("10.0.0.7:3669".into()),
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::new(BTreeMap::from([("zone".into(), "a".into())])),
        capacity: Amount {
            cpu_milli: 4_000,
            memory_bytes: 8 << 30,
        },
        runs_replicas: true,
        tries_settings: false,
        mounts_files: true,
        runs_steps: true,
        volumes: dhow_core::spec::VolumeSupport::Sized,
        mesh_addr: Some("10.0.0.7:3672".into()),
    })
}

fn notify_settings() -> NotifySettings {
    NotifySettings {
        shown: "https://ops.example/…".into(),
        sealed: Arc::from([7; 12]),
        on: Notice::ALL.into(),
    }
}

fn api_token() -> Arc<ApiToken> {
    Arc::new(ApiToken {
        hash: [0xab; 32],
        role: ApiRole::Read,
        name: "ci".into(),
        created_unix_secs: 1_700_000_000,
        expires_unix_secs: Some(1_800_000_000),
    })
}

pub fn key(index: u32) -> ReplicaKey {
    ReplicaKey {
        service: ServiceId(1),
        slot: Slot {
            role: RoleId(0),
            index,
        },
        generation: Generation(1),
    }
}

pub fn events() -> Vec<ReplicaEvent> {
    vec![
        ReplicaEvent::PullBegan,
        ReplicaEvent::StartBegan,
        ReplicaEvent::Started { pid: 4321 },
        ReplicaEvent::BecameHealthy,
        ReplicaEvent::BecameUnhealthy {
            message: "503".into(),
        },
        ReplicaEvent::RanSteadily,
        ReplicaEvent::Ended {
            exit: Exit::Signal(9),
            oom: true,
        },
        ReplicaEvent::CouldNotStart {
            message: "no such image".into(),
        },
        ReplicaEvent::StopBegan,
        ReplicaEvent::Adopted { pid: 4322 },
        ReplicaEvent::NodeLost,
        ReplicaEvent::SettingsPassed {
            settings: SettingsId(3),
        },
        ReplicaEvent::SettingsFailed {
            settings: SettingsId(3),
            message: "it answered with 500".into(),
        },
    ]
}

/// The kinds of events that form 1 has.
const EVENTS_OF_FORM_ONE: usize = 11;

/// A report of what form 1 has no events for.
pub fn report_of_settings() -> Entry {
    let first = EVENTS_OF_FORM_ONE as u64 + 1;
    entry(Command::Agent(report(
        first,
        events().into_iter().skip(EVENTS_OF_FORM_ONE),
    )))
}

fn report(first_seq: u64, events: impl Iterator<Item = ReplicaEvent>) -> AgentCommand {
    let told = |event| AgentEvent {
        replica: key(0),
        event,
    };
    AgentCommand::Report {
        node: NodeId(7),
        incarnation: 11,
        first_seq,
        events: events.map(told).collect(),
    }
}

/// Every command once, in the order of the enums.
pub fn commands() -> Vec<Command> {
    let mut commands: Vec<Command> = cluster().into_iter().map(Command::Cluster).collect();
    commands.extend(node().into_iter().map(Command::Node));
    commands.extend(deployment().into_iter().map(Command::Deployment));
    commands.extend(plan().into_iter().map(Command::Plan));
    commands.extend(agent().into_iter().map(Command::Agent));
    commands
}

pub fn entry(command: Command) -> Entry {
    Entry {
        time: ClusterTime(1_000),
        term: Term(3),
        request: None,
        command,
    }
}

/// An entry with everything that is optional.
pub fn entry_with_request() -> Entry {
    Entry {
        request: Some(RequestId {
            request: Request {
                principal: "operator".into(),
                key: "k-1".into(),
            },
            body_hash: [0xab; 32],
        }),
        ..entry(Command::Deployment(DeploymentCommand::Remove {
            deployment: shop(),
        }))
    }
}

fn set_source() -> ClusterCommand {
    ClusterCommand::SetSource {
        name: "shop".into(),
        settings: dhow_core::state::SourceSettings {
            dir: "/srv/dhow/shop".into(),
            keys: [[7; 32]].into(),
            remote: Some(Arc::new(dhow_core::state::RemoteSource {
                kind: dhow_core::state::RemoteKind::Git,
                url: "https://git.example.com/shop.git".into(),
                reference: "main".into(),
                path: "deploy".into(),
                ca_secret: Some("git-ca".into()),
                login_secret: Some("git-login".into()),
            })),
            max_age_secs: Some(604_800),
            hook_secret: Some("git-hook".into()),
        },
    }
}

fn cluster() -> Vec<ClusterCommand> {
    vec![
        ClusterCommand::Bootstrap {
            cluster_id: "c-1".into(),
            feature_level: State::FEATURE_LEVEL,
            nodes_limit: Some(State::NODES_LIMIT),
        },
        ClusterCommand::TermBegan {
            leader: NodeId(1),
            wall_unix_ms: None,
        },
        ClusterCommand::IssueToken {
            nonce: "n-1".into(),
            uses_allowed: 5,
            expires_unix_secs: 1_800_000_000,
        },
        ClusterCommand::RevokeToken { nonce: "n-1".into() },
        ClusterCommand::UseToken {
            nonce: "n-1".into(),
            key_hash: "h-1".into(),
            now_unix_secs: 1_700_000_000,
            wish: Some(NodeId(9)),
            info: info(),
            is_plain: false,
        },
        ClusterCommand::SetSecret {
            name: "db-password".into(),
            sealed: Arc::from([1, 2, 3].as_slice()),
        },
        ClusterCommand::RemoveSecret {
            name: "db-password".into(),
        },
        ClusterCommand::IssueApiToken {
            id: "t-1".into(),
            token: api_token(),
        },
        ClusterCommand::RevokeApiToken { id: "t-1".into() },
        ClusterCommand::RotateWorkerCa {
            now_unix_secs: 1_700_000_000,
            believed_until_unix_secs: 1_700_086_400,
        },
        ClusterCommand::RaiseFeatureLevel {
            level: 2,
            nodes_limit: Some(State::NODES_LIMIT),
        },
        ClusterCommand::KeepServerIds {
            nodes: vec![NodeId(1), NodeId(300)],
        },
        set_source(),
        ClusterCommand::RemoveSource { name: "shop".into() },
        ClusterCommand::EpochBegan {
            revision: Revision(400),
            time: ClusterTime(60_000),
        },
        ClusterCommand::SetNotify {
            name: "ops".into(),
            settings: notify_settings(),
        },
        ClusterCommand::RemoveNotify { name: "ops".into() },
        ClusterCommand::NotifyTold {
            name: "ops".into(),
            done: EventPlace {
                revision: Revision(40),
                part: 2,
            },
        },
    ]
}

fn node() -> Vec<NodeCommand> {
    let node = NodeId(7);
    vec![
        NodeCommand::Register { node, info: info() },
        NodeCommand::Lost { node },
        NodeCommand::Back { node },
        NodeCommand::SetDrain {
            node,
            drain: Drain::Draining { shutdown: true },
        },
        NodeCommand::Label {
            node,
            set: BTreeMap::from([("disk".into(), "ssd".into())]),
            unset: vec!["zone".into()],
        },
        NodeCommand::Remove { node },
        NodeCommand::TellsGenerations { node },
        NodeCommand::Drain {
            node,
            shutdown: false,
            deadline_ms: Some(600_000),
            ignore_system: true,
        },
        NodeCommand::InternalTokenShown {
            node,
            number: 2,
            earlier_until_unix_secs: 1_700_000_000,
        },
    ]
}

fn deployment() -> Vec<DeploymentCommand> {
    vec![
        DeploymentCommand::Deploy {
            spec: spec(),
            author: "operator".into(),
            wall_unix_secs: 1_700_000_000,
            force: false,
        },
        DeploymentCommand::Remove { deployment: shop() },
        DeploymentCommand::Scale {
            deployment: shop(),
            changes: vec![ScaleChange {
                service: web(),
                role: Some(RoleName::fallback()),
                replicas: 5,
            }],
        },
        DeploymentCommand::Restart {
            deployment: shop(),
            service: Some(web()),
        },
        DeploymentCommand::Rollback {
            deployment: shop(),
            to: Some(DeploymentRevision(2)),
            author: "operator".into(),
            wall_unix_secs: 1_700_000_001,
        },
        DeploymentCommand::ApplyManifests {
            version: ManifestVersion {
                version: 4,
                created_unix_secs: 1_700_000_002,
                index_hash: [0xcd; 32],
            },
            specs: vec![ManifestSpec(spec())],
            wall_unix_secs: 1_700_000_003,
            source: None,
            commit: None,
            why: dhow_core::command::ApplyReason::Newer,
        },
        DeploymentCommand::RecordConflicted {
            spec: spec(),
            author: "op".into(),
            wall_unix_secs: 1_700_000_004,
        },
        DeploymentCommand::StartRun {
            deployment: shop(),
            service: web(),
        },
        DeploymentCommand::Steer {
            deployment: shop(),
            service: Some(web()),
            action: RolloutAction::Abort,
            author: "operator".into(),
        },
    ]
    .into_iter()
    .chain(since_level_six())
    .collect()
}

/// What came with feature level 6.
fn since_level_six() -> Vec<DeploymentCommand> {
    vec![
        DeploymentCommand::Stop {
            deployment: shop(),
            service: Some(web()),
            author: "operator".into(),
            wall_unix_secs: 1_700_000_005,
        },
        DeploymentCommand::Start {
            deployment: shop(),
            service: None,
            author: "operator".into(),
            wall_unix_secs: 1_700_000_006,
        },
        DeploymentCommand::BindVolume {
            deployment: shop(),
            volume: "data".into(),
            node: NodeId(2),
            kept: true,
        },
        DeploymentCommand::Rebalance {
            moves: vec![ReplicaMove {
                replica: key(2),
                from: NodeId(3),
                to: NodeId(4),
            }],
            author: "operator".into(),
        },
        DeploymentCommand::Hold {
            deployment: shop(),
            changes: vec![ScaleChange {
                service: web(),
                role: None,
                replicas: 4,
            }],
            span: TimeSpan::from_secs(3_600),
            author: "operator".into(),
        },
        DeploymentCommand::EndHold {
            deployment: shop(),
            services: vec![web()],
            author: "operator".into(),
        },
        DeploymentCommand::Suspending {
            for_ms: 3_600_000,
            until_unix_secs: 1_700_003_605,
            author: "operator".into(),
            command: Box::new(DeploymentCommand::Rollback {
                deployment: shop(),
                to: None,
                author: "operator".into(),
                wall_unix_secs: 1_700_000_005,
            }),
        },
    ]
}

fn judgement() -> Judgement {
    let counted = |requests, errors| Counted { requests, errors };
    Judgement {
        figures: Figures {
            canary: counted(200, 41),
            base: counted(8_000, 16),
        },
        verdict: Verdict::Worse,
    }
}

fn due() -> JobCommand {
    JobCommand::Due {
        service: ServiceId(1),
        due_unix_secs: 1_700_000_040,
        follows_unix_secs: Some(1_699_999_980),
        is_missed: false,
    }
}

fn resize() -> Resize {
    Resize {
        from: 2,
        to: 5,
        load: Load {
            cpu_milli: 900,
            memory_bytes: 1 << 30,
            requests_milli: 412_500,
            in_flight: 31,
            waiting: 0,
            is_whole: true,
        },
        most: 5,
    }
}

fn plan() -> Vec<PlanCommand> {
    let (service, generation) = (ServiceId(1), Generation(1));
    vec![
        PlanCommand::Place {
            service,
            generation,
            placements: vec![Placement {
                slot: key(0).slot,
                node: NodeId(7),
                eligibility: Revision(3),
            }],
        },
        PlanCommand::Stop {
            service,
            generation,
            replicas: vec![key(1)],
            why: StopReason::Displaced { by: ServiceId(2) },
        },
        PlanCommand::Forget {
            replicas: vec![key(1)],
        },
        PlanCommand::ForgetService { service },
        PlanCommand::OpenGeneration { service, generation },
        PlanCommand::Release {
            service,
            generation,
            without: Some("db: not healthy after 300s".into()),
        },
        PlanCommand::MarkStable {
            deployment: shop(),
            revision: DeploymentRevision(1),
        },
        PlanCommand::Fail {
            deployment: shop(),
            revision: DeploymentRevision(1),
            service,
            cause: "web-default-0 was not healthy in time".into(),
            of_version: true,
        },
        PlanCommand::DrainFinished { node: NodeId(7) },
        PlanCommand::CronFired {
            service,
            scheduled_unix_secs: 1_700_000_040,
        },
        PlanCommand::TrySettings {
            service,
            generation,
            settings: SettingsId(2),
            replicas: vec![key(0)],
        },
        PlanCommand::AdoptSettings {
            service,
            generation,
            settings: SettingsId(2),
        },
        PlanCommand::Job(due()),
        PlanCommand::JudgeCanary {
            service,
            generation,
            judgement: judgement(),
        },
        PlanCommand::Resize {
            service,
            generation,
            resize: resize(),
        },
    ]
}

fn agent() -> Vec<AgentCommand> {
    vec![
        report(1, events().into_iter().take(EVENTS_OF_FORM_ONE)),
        AgentCommand::Inventory {
            node: NodeId(7),
            incarnation: 12,
            seq: 40,
            replicas: vec![InventoryItem {
                replica: key(0),
                machine: Machine {
                    state: ReplicaState::Backoff,
                    healthy: false,
                    pid: Some(4321),
                    restarts: 2,
                    failures: 1,
                    exit: Some(Exit::Code(42)),
                    oom: false,
                    message: Some("FATAL: cannot open config".into()),
                },
            }],
        },
    ]
}

/// How the state below begins.
fn beginning() -> Vec<Command> {
    vec![
        Command::Cluster(ClusterCommand::Bootstrap {
            cluster_id: "c-1".into(),
            feature_level: State::FEATURE_LEVEL,
            nodes_limit: Some(State::NODES_LIMIT),
        }),
        Command::Cluster(ClusterCommand::TermBegan {
            leader: NodeId(1),
            wall_unix_ms: None,
        }),
        Command::Node(NodeCommand::Register {
            node: NodeId(7),
            info: info(),
        }),
        Command::Cluster(ClusterCommand::IssueToken {
            nonce: "n-1".into(),
            uses_allowed: 5,
            expires_unix_secs: 1_800_000_000,
        }),
        Command::Cluster(ClusterCommand::SetSecret {
            name: "db-password".into(),
            sealed: Arc::from([1, 2, 3].as_slice()),
        }),
        Command::Cluster(ClusterCommand::IssueApiToken {
            id: "t-1".into(),
            token: api_token(),
        }),
        Command::Cluster(ClusterCommand::RotateWorkerCa {
            now_unix_secs: 1_700_000_000,
            believed_until_unix_secs: 1_700_086_400,
        }),
        Command::Deployment(DeploymentCommand::Deploy {
            spec: spec(),
            author: "operator".into(),
            wall_unix_secs: 1_700_000_000,
            force: false,
        }),
    ]
}

/// A state with something in most of its maps.
pub fn state() -> State {
    let mut state = State::default();
    for command in beginning() {
        step(&mut state, &entry(command), &mut ()).unwrap();
    }
    let place = PlanCommand::Place {
        service: ServiceId(1),
        generation: Generation(1),
        placements: vec![Placement {
            slot: key(0).slot,
            node: NodeId(7),
            eligibility: state.nodes[&NodeId(7)].eligibility,
        }],
    };
    step(&mut state, &entry(Command::Plan(place)), &mut ()).unwrap();
    let report = AgentCommand::Report {
        node: NodeId(7),
        incarnation: 0,
        first_seq: 1,
        events: vec![AgentEvent {
            replica: key(0),
            event: ReplicaEvent::StartBegan,
        }],
    };
    step(&mut state, &entry(Command::Agent(report)), &mut ()).unwrap();
    let mut kept = entry_with_request();
    kept.command = Command::Node(NodeCommand::Lost { node: NodeId(7) });
    step(&mut state, &kept, &mut ()).unwrap();
    add_files(&mut state);
    add_runs(&mut state);
    state
}

/// The runs of a schedule, and a job that was late.
fn add_runs(state: &mut State) {
    let run = |number: u32, end: Option<RunEnd>| ScheduleRun {
        number,
        due_unix_secs: end.is_none().then_some(1_700_000_040),
        base: number,
        counts: [1].into(),
        began: ClusterTime(5),
        end,
    };
    let ended = RunEnd {
        at: ClusterTime(6),
        outcome: RunOutcome::Failed,
    };
    let service = Arc::make_mut(state.services.get_mut(&ServiceId(1)).unwrap());
    service.runs = [run(1, Some(ended)), run(2, None)]
        .into_iter()
        .map(Arc::new)
        .collect();
    service.due_times.settle(1_700_000_040, None);
    service.late = Some(ClusterTime(7));
    service.stopped = Some(Stopped {
        at: ClusterTime(8),
        wall_unix_secs: 1_700_000_007,
        by: "operator".into(),
    });
}

/// Contents, a secret with an earlier value, and a replica that was told nothing of either.
fn add_files(state: &mut State) {
    step(state, &entry_with_files(), &mut ()).unwrap();
    let good = PlanCommand::MarkStable {
        deployment: spec_with_files().deployment.clone(),
        revision: DeploymentRevision(1),
    };
    step(state, &entry(Command::Plan(good)), &mut ()).unwrap();
    let again = ClusterCommand::SetSecret {
        name: "db-password".into(),
        sealed: Arc::from([4, 5].as_slice()),
    };
    step(state, &entry(Command::Cluster(again)), &mut ()).unwrap();
    assert!(
        state.secrets.values().any(|secret| !secret.earlier.is_empty()),
        "the golden shows it"
    );
    let replica = state.replicas.get_mut(&key(0)).unwrap();
    Arc::make_mut(replica).read = Some(7);
}
