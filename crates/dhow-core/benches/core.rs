//! The core as a whole, against its bars: `cargo bench -p dhow-core --bench core`. Planning and applying
//! together, as a leader does; the engine alone is in `placement.rs`. Without `--bench`, as under
//! `cargo test --all-targets`, everything runs once and small.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use dhow_core::amount::Amount;
use dhow_core::command::{
    AgentCommand, AgentEvent, Command, DeploymentCommand, Entry, NodeCommand, PlanCommand,
};
use dhow_core::ids::{DeploymentName, NodeId, ReplicaKey, ServiceName, Term};
use dhow_core::plan::{PlanCache, plan_next};
use dhow_core::replica::{Exit, ReplicaEvent};
use dhow_core::spec::{ByteSize, Cpu, DeploymentSpec, ImageSpec, ScaleSpec, ServiceSpec, SpecVersion};
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_core::step::step;

/// Counts the bytes that are alive, to know what a replica costs.
struct Counting;

static ALIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged; only a number is kept beside.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn apply(state: &mut State, command: Command) {
    let entry = Entry {
        time: state.time,
        term: Term(0),
        request: None,
        command,
    };
    if let Err(refused) = step(state, &entry, &mut ()) {
        panic!("refused: {refused} ({:?})", entry.command);
    }
}

fn nodes(state: &mut State, count: u64) {
    for id in 1..=count {
        let labels = BTreeMap::from([
            ("rack".into(), format!("r{}", id % 75)),
            ("zone".into(), format!("z{}", id % 3)),
        ]);
        let info = NodeInfo {
            role: NodeRole::Worker,
            api_addr: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Arc::new(labels),
            capacity: Amount {
                cpu_milli: 64_000,
                memory_bytes: 256 << 30,
            },
            runs_replicas: true,
            tries_settings: false,
            mounts_files: false,
            runs_steps: false,
            volumes: dhow_core::spec::VolumeSupport::Named,
            mesh_addr: None,
        };
        apply(
            state,
            Command::Node(NodeCommand::Register {
                node: NodeId(id),
                info: Arc::new(info),
            }),
        );
    }
}

fn service(replicas: u32, number: u64) -> ServiceSpec {
    let mut spec = ServiceSpec {
        image: Some(ImageSpec::named("web:1")),
        scale: ScaleSpec::Fixed { replicas },
        ..ServiceSpec::default()
    };
    spec.resources.cpu = Some(Cpu(50 + 10 * (number % 20)));
    spec.resources.memory = Some(ByteSize((64 + 32 * (number % 8)) << 20));
    spec
}

fn deploy(state: &mut State, number: u64, spec: ServiceSpec) {
    let deployment = DeploymentName::new(&format!("load-{number}")).expect("a valid name");
    let services = BTreeMap::from([(ServiceName::new("web").expect("a valid name"), Arc::new(spec))]);
    let spec = Arc::new(DeploymentSpec {
        version: SpecVersion::V1,
        deployment,
        services,
        scaled: Default::default(),
        configs: Default::default(),
    });
    let command = DeploymentCommand::Deploy {
        spec,
        author: "bench".into(),
        wall_unix_secs: 0,
        force: false,
    };
    apply(state, Command::Deployment(command));
}

/// Plans and applies until nothing is left to place. How long planning and applying took.
fn settle(state: &mut State, cache: &mut PlanCache) -> (f64, f64) {
    let (mut planning, mut applying) = (0.0, 0.0);
    loop {
        let began = Instant::now();
        let plan = plan_next(state, cache, state.time);
        planning += began.elapsed().as_secs_f64();
        if plan.commands.is_empty() {
            return (planning, applying);
        }
        let began = Instant::now();
        for command in plan.commands {
            apply(state, Command::Plan(command));
        }
        applying += began.elapsed().as_secs_f64();
    }
}

/// A million replicas of a thousand services onto 5,000 empty nodes, planned and applied.
fn million(scale: u64) {
    let (services, each) = (1_000 / scale, (1_000 / scale) as u32);
    let mut state = State::default();
    nodes(&mut state, 5_000 / scale);
    for number in 0..services {
        deploy(&mut state, number, service(each, number));
    }
    let before = ALIVE_BYTES.load(Ordering::Relaxed);
    let mut cache = PlanCache::default();
    let (planning, applying) = settle(&mut state, &mut cache);
    drop(cache);
    let bytes = ALIVE_BYTES.load(Ordering::Relaxed) - before;
    let placed = state.replicas.len();
    println!(
        "{placed} replicas of {services} services on {} nodes: planned {:.0}/s, applied {:.0}/s, together {:.0}/s; {} bytes of state a replica",
        state.nodes.len(),
        placed as f64 / planning,
        placed as f64 / applying,
        placed as f64 / (planning + applying),
        bytes / placed.max(1),
    );
    run_all(&mut state);
    let began = Instant::now();
    let hash = state.hash();
    println!(
        "hash of that state in {:.2} s ({})",
        began.elapsed().as_secs_f64(),
        &hash.to_string()[..8]
    );
}

/// Every replica reports that it runs and is healthy: what the mirror costs.
fn run_all(state: &mut State) {
    let nodes: Vec<NodeId> = state.nodes.keys().copied().collect();
    let (mut events, began) = (0usize, Instant::now());
    for node in nodes {
        let keys: Vec<ReplicaKey> = state
            .node(node)
            .map(|node| node.replica_keys().collect())
            .unwrap_or_default();
        let each = |key: &ReplicaKey| {
            [
                ReplicaEvent::StartBegan,
                ReplicaEvent::Started { pid: 7 },
                ReplicaEvent::BecameHealthy,
            ]
            .map(|event| AgentEvent { replica: *key, event })
        };
        let list: Vec<AgentEvent> = keys.iter().flat_map(each).collect();
        events += list.len();
        let report = AgentCommand::Report {
            node,
            incarnation: 0,
            first_seq: 1,
            events: list,
        };
        apply(state, Command::Agent(report));
    }
    println!(
        "step: {events} reported events, {:.0}/s",
        events as f64 / began.elapsed().as_secs_f64()
    );
}

/// 1,200 replicas spread over 75 racks of 10,000 nodes.
fn racks(scale: u64) {
    let mut state = State::default();
    nodes(&mut state, 10_000 / scale);
    let mut spec = service(1_200 / scale as u32, 0);
    spec.spread_by = Some("rack".into());
    deploy(&mut state, 0, spec);
    let mut cache = PlanCache::default();
    // The cache of a leader at work knows the nodes.
    plan_next(
        &State {
            deployments: Default::default(),
            services: Default::default(),
            ..state.clone()
        },
        &mut cache,
        state.time,
    );
    let (planning, applying) = settle(&mut state, &mut cache);
    let mut per_rack: BTreeMap<u64, u32> = BTreeMap::new();
    for replica in state.replicas.values() {
        *per_rack.entry(replica.node.0 % 75).or_default() += 1;
    }
    println!(
        "{} replicas with rack spread on {} nodes: planned in {:.1} ms, applied in {:.1} ms; {:?} to {:?} a rack",
        state.replicas.len(),
        state.nodes.len(),
        planning * 1e3,
        applying * 1e3,
        per_rack.values().min(),
        per_rack.values().max(),
    );
}

/// One replica is lost in a cluster of 10,000 nodes and 100,000 replicas, in services of `each`.
fn replan(scale: u64, each: u32) {
    let mut state = State::default();
    nodes(&mut state, 10_000 / scale);
    let services = 100_000 / scale / u64::from(each);
    for number in 0..services.max(1) {
        deploy(&mut state, number, service(each, number));
    }
    let mut cache = PlanCache::default();
    settle(&mut state, &mut cache);
    run_all(&mut state);
    settle(&mut state, &mut cache);
    let mut times_us: Vec<f64> = Vec::new();
    for round in 0..50 {
        let Some(victim) = state
            .replicas
            .keys()
            .nth(round * state.replicas.len() / 50)
            .copied()
        else {
            continue;
        };
        let stop = lose(&state, victim);
        stop.into_iter().for_each(|command| apply(&mut state, command));
        let began = Instant::now();
        let plan = plan_next(&state, &mut cache, state.time);
        times_us.push(began.elapsed().as_secs_f64() * 1e6);
        let placed = plan
            .commands
            .iter()
            .any(|command| matches!(command, PlanCommand::Place { .. }));
        assert!(placed, "the lost replica is planned anew");
        plan.commands
            .into_iter()
            .for_each(|command| apply(&mut state, Command::Plan(command)));
        settle(&mut state, &mut cache);
    }
    times_us.sort_by(f64::total_cmp);
    println!(
        "one replica lost of {} on {} nodes, services of {each}: replanned in {:.0} µs (median), {:.0} µs (worst of 50)",
        state.replicas.len(),
        state.nodes.len(),
        times_us[times_us.len() / 2],
        times_us[times_us.len() - 1],
    );
}

/// The replica is gone for good: stopped by the plan and reported ended by its node.
fn lose(state: &State, key: ReplicaKey) -> Vec<Command> {
    let (Some(replica), Some(service)) = (state.replicas.get(&key), state.service(key.service)) else {
        return Vec::new();
    };
    let Some(node) = state.node(replica.node) else {
        return Vec::new();
    };
    let stop = PlanCommand::Stop {
        service: key.service,
        generation: service.target,
        replicas: vec![key],
        why: dhow_core::command::StopReason::NodeUnfit,
    };
    let events = [
        ReplicaEvent::StopBegan,
        ReplicaEvent::Ended {
            exit: Exit::Signal(9),
            oom: false,
        },
    ]
    .map(|event| AgentEvent { replica: key, event });
    let report = AgentCommand::Report {
        node: node.id,
        incarnation: node.session.incarnation,
        first_seq: node.session.seq + 1,
        events: events.to_vec(),
    };
    vec![Command::Plan(stop), Command::Agent(report)]
}

fn main() {
    let scale = if std::env::args().any(|argument| argument == "--bench") {
        1
    } else {
        50
    };
    million(scale);
    racks(scale);
    replan(scale, 100);
    replan(scale, 100_000 / scale as u32);
}
