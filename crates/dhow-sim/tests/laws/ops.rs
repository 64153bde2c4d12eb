//! What generated clusters go through.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::amount::Amount;
use dhow_core::command::{
    ClusterCommand, Command, DeploymentCommand, JobCommand, NodeCommand, PlanCommand, RolloutAction,
    ScaleChange,
};
use dhow_core::ids::{DeploymentName, NodeId, RoleName, ServiceName, Term};
use dhow_core::rollout::{Counted, Figures};
use dhow_core::spec::{
    Affinity, AffinityMode, ByteSize, Concurrency, ConfigSpec, Cpu, Dependency, DeploymentSpec, Endpoint,
    Expose, FileMount, ImageSpec, Neighbour, NodeMode, OnChange, OnFailure, Promote, Protocol, RType,
    ReplicaGroup, ScaleSpec, ServiceSpec, SpecVersion, Storage, TimeSpan,
};
use dhow_core::state::{Drain, NodeInfo, NodeRole};
use dhow_sim::lab::{Behaviour, Lab};
use proptest::collection::vec;
use proptest::prelude::*;

pub const NODES: u64 = 6;

#[derive(Clone, Debug)]
pub enum Op {
    AddNode {
        id: u64,
        cpu: u64,
        zone: u8,
    },
    Cut(u64),
    PowerOff(u64),
    Back(u64),
    LoseLedger(u64),
    Drain(u64, bool),
    DrainWith(u64, Option<u64>, bool),
    Undrain(u64),
    Label(u64, u8),
    RemoveNode(u64),
    Deploy(u8, Vec<ServiceShape>),
    Scale(u8, u8, u32),
    Restart(u8),
    Rollback(u8),
    Steer(u8, u8),
    /// Or starts it: a deployment, or one service of it.
    Stop(u8, Option<u8>, bool),
    /// The balancers have counted so many failures of 400 requests to a canary.
    Calls(u64),
    Remove(u8),
    SetSecret(u8),
    ChangeLeader(u64),
    RememberPlan,
    ApplyRememberedPlan,
    Run(u64),
    Heal,
    /// A moment of a schedule, of few, so that the same ones come again.
    Due(u8, u8, i64),
    StartRun(u8, u8),
}

#[derive(Clone, Debug)]
pub struct ServiceShape {
    name: u8,
    image: u8,
    replicas: u32,
    cpu: u64,
    kind: u8,
    priority: u8,
    mode: u8,
    affinity: u8,
    surge: u32,
    unavailable: u32,
    depends: Option<u8>,
    volume: bool,
    groups: bool,
    pause: bool,
    selector: bool,
    lost_after: u64,
    file: u8,
    canary: u8,
    spared: u8,
    limits: u8,
}

#[derive(Clone, Debug)]
pub struct Script {
    pub ops: Vec<Op>,
}

/// Plans made earlier, to be applied late.
#[derive(Default)]
pub struct Memory {
    plans: Vec<(Term, Vec<PlanCommand>)>,
}

fn shape() -> impl Strategy<Value = ServiceShape> {
    let first = (0..3u8, 0..7u8, 0..7u32, 0..4u64, 0..11u8, 0..4u8, 0..8u8, 0..5u8);
    let second = (
        0..3u32,
        0..3u32,
        prop::option::weighted(0.2, 0..3u8),
        prop::bool::weighted(0.1),
    );
    let third = (
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.15),
        prop_oneof![4 => Just(0), 1 => 1..30u64],
        0..12u8,
        0..6u8,
        (0..4u8, 0..16u8),
    );
    (first, second, third).prop_map(|(a, b, c)| ServiceShape {
        name: a.0,
        image: a.1,
        replicas: a.2,
        cpu: a.3,
        kind: a.4,
        priority: a.5,
        mode: a.6,
        affinity: a.7,
        surge: b.0,
        unavailable: b.1,
        depends: b.2,
        volume: b.3,
        groups: c.0,
        pause: c.1,
        selector: c.2,
        lost_after: c.3,
        file: c.4,
        canary: c.5,
        spared: c.6.0,
        limits: c.6.1,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let node = || 1..=NODES;
    prop_oneof![
        2 => (node(), 1..5u64, 0..3u8).prop_map(|(id, cpu, zone)| Op::AddNode { id, cpu, zone }),
        1 => node().prop_map(Op::Cut),
        1 => node().prop_map(Op::PowerOff),
        2 => node().prop_map(Op::Back),
        1 => node().prop_map(Op::LoseLedger),
        1 => (node(), any::<bool>()).prop_map(|(id, shutdown)| Op::Drain(id, shutdown)),
        1 => (node(), prop::option::of(0..120_000u64), any::<bool>())
            .prop_map(|(id, deadline_ms, system)| Op::DrainWith(id, deadline_ms, system)),
        1 => node().prop_map(Op::Undrain),
        1 => (node(), 0..3u8).prop_map(|(id, zone)| Op::Label(id, zone)),
        1 => node().prop_map(Op::RemoveNode),
        4 => (0..2u8, vec(shape(), 1..4)).prop_map(|(name, shapes)| Op::Deploy(name, shapes)),
        2 => (0..2u8, 0..3u8, 0..8u32).prop_map(|(name, service, count)| Op::Scale(name, service, count)),
        1 => (0..2u8).prop_map(Op::Restart),
        1 => (0..2u8).prop_map(Op::Rollback),
        2 => (0..2u8, 0..4u8).prop_map(|(name, action)| Op::Steer(name, action)),
        2 => (0..2u8, prop::option::of(0..3u8), any::<bool>())
            .prop_map(|(name, of, stops)| Op::Stop(name, of, stops)),
        2 => (0..400u64).prop_map(Op::Calls),
        1 => (0..2u8).prop_map(Op::Remove),
        1 => (0..2u8).prop_map(Op::SetSecret),
        1 => node().prop_map(Op::ChangeLeader),
        3 => (0..2u8, 0..3u8, 0..12i64).prop_map(|(name, of, minute)| Op::Due(name, of, minute)),
        1 => (0..2u8, 0..3u8).prop_map(|(name, of)| Op::StartRun(name, of)),
        1 => Just(Op::RememberPlan),
        1 => Just(Op::ApplyRememberedPlan),
        6 => prop_oneof![1..3_000u64, 3_000..60_000u64, 60_000..900_000u64].prop_map(Op::Run),
    ]
}

/// A canary, and a share of replicas that may fail, where there is room for one.
fn roll_in_stages(spec: &mut ServiceSpec, shape: &ServiceShape) {
    if spec.rtype == RType::Service && !shape.volume && shape.surge > 0 {
        (spec.rollout.canary, spec.rollout.promote) = match shape.canary {
            1 => (1, Promote::Auto),
            2 => (2, Promote::Auto),
            3 => (1, Promote::Manual),
            _ => (0, Promote::Auto),
        };
        let spared = ["0%", "0%", "20%", "50%"][usize::from(shape.spared)];
        spec.rollout.failure_ratio = spared.parse().expect("a share");
    }
}

fn rollback(lab: &mut Lab, name: u8) {
    drop(lab.apply(Command::Deployment(DeploymentCommand::Rollback {
        deployment: deployment(name),
        to: None,
        author: "lab".into(),
        wall_unix_secs: 0,
    })));
}

fn steer(lab: &mut Lab, name: u8, action: u8) {
    let actions = [
        RolloutAction::Promote,
        RolloutAction::Pause,
        RolloutAction::Resume,
        RolloutAction::Abort,
    ];
    drop(lab.apply(Command::Deployment(DeploymentCommand::Steer {
        deployment: deployment(name),
        service: None,
        action: actions[usize::from(action) % actions.len()],
        author: "lab".into(),
    })));
}

fn stop(lab: &mut Lab, name: u8, of: Option<u8>, stops: bool) {
    let (deployment, service) = (deployment(name), of.map(service));
    let (author, wall_unix_secs) = ("lab".into(), 0);
    let command = match stops {
        true => DeploymentCommand::Stop {
            deployment,
            service,
            author,
            wall_unix_secs,
        },
        false => DeploymentCommand::Start {
            deployment,
            service,
            author,
            wall_unix_secs,
        },
    };
    drop(lab.apply(Command::Deployment(command)));
}

/// All canaries there are have got 400 requests, and so many of them failed; beside them one in a hundred.
fn calls(lab: &mut Lab, errors: u64) {
    let counted = |requests, errors| Counted { requests, errors };
    let services = lab.state.services.values();
    lab.figures = services
        .filter_map(|service| Some((service.id, service.canary_base()?)))
        .map(|key| {
            let figures = Figures {
                canary: counted(400, errors),
                base: counted(4_000, 40),
            };
            (key, figures)
        })
        .collect();
}

pub fn script() -> impl Strategy<Value = Script> {
    let start = vec((1..5u64, 0..3u8), 1..4).prop_map(|nodes| {
        nodes
            .into_iter()
            .zip(1..)
            .map(|((cpu, zone), id)| Op::AddNode { id, cpu, zone })
            .collect::<Vec<_>>()
    });
    (start, vec(op(), 1..25)).prop_map(|(mut ops, more)| {
        ops.extend(more);
        Script { ops }
    })
}

fn info(cpu: u64, zone: u8) -> NodeInfo {
    let zone = ["a", "b", "c"][usize::from(zone)];
    NodeInfo {
        role: NodeRole::Peer,
        api_addr: None,
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::new(BTreeMap::from([("zone".into(), zone.into())])),
        capacity: Amount {
            cpu_milli: cpu * 1000,
            memory_bytes: 8 << 30,
        },
        runs_replicas: true,
        tries_settings: true,
        mounts_files: true,
        runs_steps: true,
        volumes: dhow_core::spec::VolumeSupport::Sized,
        mesh_addr: Some(format!("10.0.0.{cpu}:3672").into()),
    }
}

fn deployment(name: u8) -> DeploymentName {
    DeploymentName::new(["shop", "blog"][usize::from(name)]).expect("a valid name")
}

fn service(name: u8) -> ServiceName {
    ServiceName::new(["web", "api", "db"][usize::from(name)]).expect("a valid name")
}

fn spec_of(shape: &ServiceShape, known: &[u8]) -> ServiceSpec {
    let images = [
        "good:1", "good:2", "good:3", "crash:1", "sick:1", "gone:1", "brief:1",
    ];
    let rtype = rtype_of(shape);
    let mut spec = ServiceSpec {
        rtype,
        image: Some(ImageSpec::named(images[usize::from(shape.image)])),
        scale: ScaleSpec::Fixed {
            replicas: shape.replicas,
        },
        priority: [10, 40, 50, 90][usize::from(shape.priority)],
        node_mode: [NodeMode::Shared, NodeMode::Dedicated, NodeMode::Exclusive]
            [usize::from(shape.mode.saturating_sub(5))],
        ..ServiceSpec::default()
    };
    spec.endpoints = endpoint_of(shape).into_iter().collect();
    count_work(&mut spec, shape);
    see_files(&mut spec, shape);
    spec.resources.cpu = (shape.cpu > 0).then_some(Cpu(shape.cpu * 400));
    spec.resources.memory = Some(ByteSize(64 << 20));
    spec.affinity = Affinity {
        mode: [
            AffinityMode::Spread,
            AffinityMode::Pack,
            AffinityMode::Spread,
            AffinityMode::Spread,
            AffinityMode::Pin,
        ][usize::from(shape.affinity)],
        spread_by: (shape.affinity == 2).then(|| "zone".into()),
        ..Affinity::default()
    };
    if shape.selector || shape.affinity == 4 {
        spec.node_selector.labels.insert("zone".into(), "a".into());
    }
    spec.rollout.max_surge = Some(shape.surge);
    spec.rollout.max_unavailable = Some(shape.unavailable.max(u32::from(shape.surge == 0)));
    spec.rollout.min_healthy = TimeSpan::from_secs(3);
    spec.rollout.on_failure = if shape.pause {
        OnFailure::Pause
    } else {
        OnFailure::Revert
    };
    roll_in_stages(&mut spec, shape);
    spec.reschedule.lost_after = TimeSpan::from_secs(shape.lost_after);
    keep_data(&mut spec, shape);
    if shape.groups && rtype == RType::Service {
        spec.replica_groups = vec![group("primary", 1), group("reader", shape.replicas)];
        spec.scale = ScaleSpec::default();
    }
    if let Some(on) = shape.depends.filter(|on| *on < shape.name && known.contains(on)) {
        spec.depends.push(Dependency {
            service: service(on),
            condition: Default::default(),
            timeout: TimeSpan::from_secs(60),
            on_timeout: Default::default(),
        });
    }
    limit_places(&mut spec, shape, known);
    spec
}

fn keep_data(spec: &mut ServiceSpec, shape: &ServiceShape) {
    if shape.volume {
        spec.storage.push(Storage::Named {
            name: "data".into(),
            target: "/data".into(),
            read_only: false,
            nocopy: false,
            size: None,
        });
        spec.rollout.max_surge = Some(0);
        spec.rollout.max_unavailable = Some(1);
    }
}

/// Rules about several nodes, which services that run on every node do not have.
fn limit_places(spec: &mut ServiceSpec, shape: &ServiceShape, known: &[u8]) {
    if spec.rtype == RType::System {
        return;
    }
    match shape.limits {
        1 | 2 => spec.max_per_node = Some(u32::from(shape.limits)),
        3 => spec.max_per = [("zone".to_owned(), 2)].into(),
        4 => {
            spec.max_per_node = Some(1);
            spec.max_per = [("zone".to_owned(), 1)].into();
        }
        5 => spec.node_selector.rules = vec!["zone != c".parse().expect("a comparison")],
        _ => {}
    }
    let Some(other) = known.iter().find(|other| **other < shape.name) else {
        return;
    };
    let mut rule = Neighbour::of(service(*other));
    match shape.limits {
        6 => spec.affinity.away_from = vec![rule],
        7 => spec.affinity.near = vec![rule],
        8 => {
            rule.by = Some("zone".into());
            spec.affinity.near = vec![rule];
        }
        9 => {
            rule.prefer = true;
            spec.affinity.away_from = vec![rule];
        }
        _ => {}
    }
}

fn rtype_of(shape: &ServiceShape) -> RType {
    match shape.kind {
        0 | 8 => RType::Job,
        1 => RType::System,
        2..=7 => RType::Service,
        9..=10 => RType::Cron,
        _ => unreachable!("kinds are below 11"),
    }
}

/// All work is two slots at a time, whatever else is said of it.
fn count_work(spec: &mut ServiceSpec, shape: &ServiceShape) {
    if !spec.runs_to_completion() {
        return;
    }
    spec.job.parallelism = Some(2);
    spec.job.deadline = shape.mode.is_multiple_of(2).then(|| TimeSpan::from_secs(120));
    if shape.kind == 8 {
        spec.scale = ScaleSpec::default();
        spec.job.completions = Some(shape.replicas.max(1));
    }
    if spec.rtype == RType::Cron {
        spec.schedule = Some("* * * * *".into());
        spec.job.keep = Some(1 + u32::from(shape.mode));
        spec.concurrency = Some(
            [Concurrency::Allow, Concurrency::Forbid, Concurrency::Replace][usize::from(shape.mode % 3)],
        );
    }
}

/// Some services have an endpoint, for each kind of callers.
fn endpoint_of(shape: &ServiceShape) -> Option<Endpoint> {
    let (expose, allow) = match (shape.priority, shape.selector) {
        (0, _) => return None,
        (1, true) => (Expose::Cluster, None),
        (1, false) => (Expose::Public, None),
        (2, true) => (Expose::Internal, Some("blog/web".parse().expect("a valid name"))),
        (_, _) => (Expose::Internal, None),
    };
    Some(Endpoint {
        expose,
        allow: allow.map(|allowed| vec![allowed]),
        ..Endpoint::new("http", Protocol::Http, 8_000 + u16::from(shape.name))
    })
}

fn group(role: &str, count: u32) -> ReplicaGroup {
    ReplicaGroup {
        role: RoleName::new(role).expect("a valid name"),
        count,
        image: None,
        env: BTreeMap::new(),
        command: None,
        resources: None,
        affinity: None,
    }
}

fn deploy_spec(name: u8, shapes: &[ServiceShape]) -> DeploymentSpec {
    let known: Vec<u8> = shapes.iter().map(|shape| shape.name).collect();
    let services = shapes
        .iter()
        .map(|shape| (service(shape.name), Arc::new(spec_of(shape, &known))))
        .collect();
    DeploymentSpec {
        version: SpecVersion::V1,
        deployment: deployment(name),
        services,
        scaled: Default::default(),
        configs: shapes
            .iter()
            .filter(|shape| has_file(shape))
            .map(config)
            .collect(),
    }
}

fn see_files(spec: &mut ServiceSpec, shape: &ServiceShape) {
    if has_file(shape) {
        spec.configs = vec![mount(shape, config(shape).0)];
        spec.secrets = vec![mount(shape, format!("secret-{}", shape.file % 2))];
    }
}

/// Half of all services see a config and a secret as files.
fn has_file(shape: &ServiceShape) -> bool {
    shape.file >= 6
}

fn config(shape: &ServiceShape) -> (String, ConfigSpec) {
    let content = format!("content {}", shape.file % 2).into_bytes();
    (format!("config-{}", shape.name), ConfigSpec::of_bytes(content))
}

fn mount(shape: &ServiceShape, source: String) -> FileMount {
    let on_change = match (shape.kind, shape.file % 3) {
        // Work that ends by itself is not told.
        (0 | 8..=10, _) | (_, 0) => OnChange::Restart,
        (_, 1) => OnChange::Signal,
        (_, _) => OnChange::None,
    };
    FileMount {
        target: Some(format!("/etc/{source}/file")),
        signal: (on_change == OnChange::Signal).then(|| "SIGHUP".to_owned()),
        source,
        on_change,
        ..FileMount::default()
    }
}

fn behaviours(lab: &mut Lab) {
    let crash = Behaviour {
        healthy_after: None,
        exit_after: Some(TimeSpan::from_millis(100)),
        exit_code: 1,
        ..Behaviour::default()
    };
    let sick = Behaviour {
        unhealthy_after: Some(TimeSpan::from_secs(2)),
        ..Behaviour::default()
    };
    let gone = Behaviour {
        cannot_start: true,
        ..Behaviour::default()
    };
    // Slow to end: much can happen to it meanwhile.
    let slow = Behaviour {
        stop: TimeSpan::from_secs(8),
        ..Behaviour::default()
    };
    let brief = Behaviour {
        exit_after: Some(TimeSpan::from_secs(5)),
        ..Behaviour::default()
    };
    // Whatever runs on the last node crashes there.
    for image in ["good:1", "good:2"] {
        lab.behaviours.insert_on(NodeId(NODES), image.into(), crash);
    }
    for (image, behaviour) in [
        ("crash:1", crash),
        ("sick:1", sick),
        ("gone:1", gone),
        ("good:3", slow),
        ("brief:1", brief),
    ] {
        lab.behaviours.insert(image.into(), behaviour);
    }
}

fn due(lab: &mut Lab, (name, of): (u8, u8), minute: i64) {
    let Some(found) = lab.state.service_named(&deployment(name), &service(of)) else {
        return;
    };
    let due = JobCommand::Due {
        service: found.id,
        due_unix_secs: minute * 60,
        follows_unix_secs: Some(minute * 60 - 60),
        is_missed: minute % 5 == 4,
    };
    drop(lab.apply(Command::Plan(PlanCommand::Job(due))));
}

fn start_run(lab: &mut Lab, (name, of): (u8, u8)) {
    let start = DeploymentCommand::StartRun {
        deployment: deployment(name),
        service: service(of),
    };
    drop(lab.apply(Command::Deployment(start)));
}

/// Does one thing; refusals are part of life.
pub fn perform(lab: &mut Lab, memory: &mut Memory, op: &Op) {
    behaviours(lab);
    match op {
        Op::AddNode { id, cpu, zone } => drop(lab.add_node(NodeId(*id), info(*cpu, *zone))),
        Op::Cut(id) => drop(lab.cut(NodeId(*id))),
        Op::PowerOff(id) => drop(lab.power_off(NodeId(*id))),
        Op::Back(id) => drop(lab.back(NodeId(*id))),
        Op::LoseLedger(id) => lab.lose_ledger(NodeId(*id)),
        Op::Drain(id, shutdown) => {
            drop(lab.drain(NodeId(*id), Drain::Draining { shutdown: *shutdown }));
        }
        Op::DrainWith(id, deadline_ms, ignore_system) => {
            drain_with(lab, NodeId(*id), *deadline_ms, *ignore_system);
        }
        Op::Undrain(id) => drop(lab.drain(NodeId(*id), Drain::No)),
        Op::Label(id, zone) => {
            let set = BTreeMap::from([("zone".into(), ["a", "b", "c"][usize::from(*zone)].into())]);
            let label = NodeCommand::Label {
                node: NodeId(*id),
                set,
                unset: Vec::new(),
            };
            drop(lab.apply(Command::Node(label)));
        }
        Op::RemoveNode(id) => remove_node(lab, NodeId(*id)),
        Op::Deploy(name, shapes) => drop(lab.deploy(deploy_spec(*name, shapes))),
        Op::Scale(name, of, replicas) => {
            let changes = vec![ScaleChange {
                service: service(*of),
                role: None,
                replicas: *replicas,
            }];
            let scale = DeploymentCommand::Scale {
                deployment: deployment(*name),
                changes,
            };
            drop(lab.apply(Command::Deployment(scale)));
        }
        Op::Due(name, of, minute) => due(lab, (*name, *of), *minute),
        Op::StartRun(name, of) => start_run(lab, (*name, *of)),
        Op::Restart(name) => {
            let restart = DeploymentCommand::Restart {
                deployment: deployment(*name),
                service: None,
            };
            drop(lab.apply(Command::Deployment(restart)));
        }
        Op::Rollback(name) => rollback(lab, *name),
        Op::Steer(name, action) => steer(lab, *name, *action),
        Op::Stop(name, of, stops) => stop(lab, *name, *of, *stops),
        Op::Calls(errors) => calls(lab, *errors),
        Op::Remove(name) => drop(lab.remove(deployment(*name))),
        Op::SetSecret(name) => set_secret(lab, *name),
        Op::ChangeLeader(id) => lab.change_leader(NodeId(*id)),
        Op::RememberPlan => memory.plans.push((lab.term, lab.plan.commands.clone())),
        Op::ApplyRememberedPlan => {
            for (term, commands) in std::mem::take(&mut memory.plans) {
                for command in commands {
                    drop(lab.apply_in_term(Command::Plan(command), term));
                }
            }
        }
        Op::Run(ms) => lab.run(TimeSpan::from_millis(*ms)),
        Op::Heal => heal(lab),
    }
}

fn set_secret(lab: &mut Lab, name: u8) {
    let set = ClusterCommand::SetSecret {
        name: format!("secret-{name}").into(),
        sealed: Arc::from(&b"sealed"[..]),
    };
    drop(lab.apply(Command::Cluster(set)));
}

fn drain_with(lab: &mut Lab, node: NodeId, deadline_ms: Option<u64>, ignore_system: bool) {
    let drain = NodeCommand::Drain {
        node,
        shutdown: false,
        deadline_ms,
        ignore_system,
    };
    drop(lab.apply(Command::Node(drain)));
}

fn remove_node(lab: &mut Lab, node: NodeId) {
    if lab.apply(Command::Node(NodeCommand::Remove { node })).is_ok() {
        lab.agents.remove(&node);
    }
}

/// Every node is there again and takes work.
pub fn heal(lab: &mut Lab) {
    let ids: Vec<NodeId> = lab.state.nodes.keys().copied().collect();
    for id in ids {
        drop(lab.back(id));
        drop(lab.drain(id, Drain::No));
    }
}
