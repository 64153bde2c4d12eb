//! The page of a large cluster: how long its addresses take, and what open pages cost while the cluster changes.
//!
//! `page [NODES] [REPLICAS]` prints both; `page NODES REPLICAS serve ADDR` goes on to serve the page on a loopback address,
//! for a look at what a browser makes of it, and prints a token.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use dhow_core::amount::Amount;
use dhow_core::command::{Command, DeploymentCommand, NodeCommand};
use dhow_core::ids::{NodeId, ReplicaName};
use dhow_core::replica::ReplicaEvent;
use dhow_core::spec::policy::{FilePolicy, WordsOnly};
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_server::api::{Access, Api, Beside, Listeners, bind, router_with, serve_with};
use dhow_server::clock::{Clock, SystemClock};
use dhow_server::net::identity::Peer;
use dhow_server::net::node_door::ScriptedDoor;
use dhow_server::net::peer_http::{NoPeers, PeerHttp};
use dhow_server::net::refused_log::RefusedLog;
use dhow_server::plane::cluster::SingleNode;
use dhow_server::plane::runtime::{ReportBody, RuntimeHandle, RuntimeOptions, spawn_with};
use dhow_server::plane::secrets::SecretBox;
use dhow_server::plane::services::{ClusterIdentity, ServiceManager};
use dhow_wire::{ClusterModeName, Sender, parse_deployment_under};
use futures_util::StreamExt;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const REPLICAS_A_SERVICE: usize = 1_000;
const SERVICES_A_DEPLOYMENT: usize = 10;
const ROUNDS: usize = 20;
const OPEN_PAGES: usize = 20;
const WATCHED: Duration = Duration::from_secs(20);

fn node(number: usize) -> Command {
    let labels = [("zone", number % 5), ("rack", number % 200)];
    let labels = labels.map(|(key, value)| (key.to_owned(), format!("{key}-{value}")));
    let info = NodeInfo {
        role: NodeRole::Worker,
        api_addr: Some(format!("10.{}.{}.7:3669", number / 250, number % 250).into()),
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::new(labels.into()),
        capacity: Amount {
            cpu_milli: 16_000,
            memory_bytes: 64 << 30,
        },
        runs_replicas: true,
        tries_settings: true,
        mounts_files: true,
        runs_steps: true,
        volumes: dhow_core::spec::VolumeSupport::Sized,
        mesh_addr: None,
    };
    Command::Node(NodeCommand::Register {
        node: NodeId(number as u64 + 1),
        info: Arc::new(info),
    })
}

fn deployment(number: usize) -> Command {
    let service = format!(
        "{{ runtime: process, command: [x], resources: {{ cpu: 0.1, memory: 64Mi }}, scale: {{ mode: fixed, \
         replicas: {REPLICAS_A_SERVICE} }} }}"
    );
    let services: String = (0..SERVICES_A_DEPLOYMENT)
        .map(|place| format!("  service-{place}: {service}\n"))
        .collect();
    let file = format!("version: v1\ndeployment: deployment-{number}\nservices:\n{services}");
    let spec = parse_deployment_under(&file, "bench", Sender::Caller, &|_| Default::default());
    Command::Deployment(DeploymentCommand::Deploy {
        spec: Arc::new(spec.expect("the file is right")),
        author: "bench".into(),
        wall_unix_secs: 1_800_000_000,
        force: false,
    })
}

/// Everything is placed, and runs.
async fn fill(handle: &RuntimeHandle, nodes: usize, replicas: usize) {
    let input = handle.input();
    for number in 0..nodes {
        input.write(node(number), None).await.expect("there is room");
    }
    for number in 0..replicas.div_ceil(REPLICAS_A_SERVICE * SERVICES_A_DEPLOYMENT) {
        input.write(deployment(number), None).await.expect("it fits");
    }
    let mut states = handle.view().states();
    let state = states.wait_for(|state| state.replicas.len() >= replicas).await;
    let state = Arc::clone(&state.expect("the runtime goes on"));
    for node in state.nodes.values() {
        let names = node.replica_keys().filter_map(|key| state.replica_name(&key));
        let events: Vec<(ReplicaName, ReplicaEvent)> = names
            .flat_map(|name| {
                let came = [
                    ReplicaEvent::StartBegan,
                    ReplicaEvent::Started { pid: 42 },
                    ReplicaEvent::BecameHealthy,
                ];
                came.map(|event| (name.clone(), event))
            })
            .collect();
        if !events.is_empty() {
            let body = ReportBody::Events { first_seq: 1, events };
            input.report(node.id, None, 1, body).await.expect("it is taken");
        }
    }
}

fn api(handle: &RuntimeHandle, dir: &TempDir) -> Api {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let identity = ClusterIdentity {
        mode: ClusterModeName::SingleNode,
        node_id: NodeId(1),
    };
    let door = Arc::new(ScriptedDoor::default());
    Api {
        manager: ServiceManager::new(handle.view(), Arc::clone(&clock), door, identity),
        input: handle.input(),
        event_log: handle.event_log(),
        secrets: Arc::new(SecretBox::open(dir.path()).expect("the folder is there")),
        cluster: Arc::new(SingleNode {
            node: NodeId(1),
            api_addr: None,
        }),
        peers: PeerHttp::new(Arc::new(NoPeers)),
        worker_tokens: None,
        renew_expired_secs: 0,
        orders_certificates: false,
        data_dir: None,
        refused: RefusedLog::new(None, clock),
        policy: Arc::new(FilePolicy {
            policy: Default::default(),
            host: WordsOnly { runs_as_root: true },
        }),
        notify: Default::default(),
    }
}

fn request(place: &str) -> Request<Body> {
    let request = Request::builder().extension(Peer::Unix { uid: 0 }).uri(place);
    request.body(Body::empty()).expect("the address is right")
}

/// Median and worst in milliseconds, and the bytes.
async fn measure(router: &Router, input: &dhow_server::plane::runtime::InputSender, place: &str) {
    let mut times = Vec::new();
    let mut bytes = 0;
    for round in 0..ROUNDS {
        // Nothing that was kept is of use.
        input.write(node(round), None).await.expect("there is room");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let begin = Instant::now();
        let answer = router.clone().oneshot(request(place)).await.expect("it answers");
        assert!(answer.status().is_success(), "{place}: {}", answer.status());
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX)
            .await
            .expect("it is whole");
        times.push(begin.elapsed().as_secs_f64() * 1_000.0);
        bytes = body.len();
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{place:<60} {:>8.1} {:>8.1} {bytes:>10}",
        times[ROUNDS / 2],
        times[ROUNDS - 1]
    );
}

fn cpu_secs() -> f64 {
    let usage =
        nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).expect("it is known");
    let secs = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    secs(usage.user_time()) + secs(usage.system_time())
}

/// What the process takes of a core, with so many pages open, while a node is labelled five times a second.
async fn watch(router: &Router, input: &dhow_server::plane::runtime::InputSender, pages: usize) -> f64 {
    let places = [
        "/ui/",
        "/ui/nodes",
        "/ui/deployments/deployment-0",
        "/ui/deployments/deployment-0/services/service-0",
    ];
    let tasks: Vec<_> = (0..pages)
        .map(|page| {
            let router = router.clone();
            tokio::spawn(async move {
                let place = format!("/ui/live?at={}", places[page % places.len()]);
                let answer = router.oneshot(request(&place)).await.expect("it answers");
                let mut pieces = answer.into_body().into_data_stream();
                while pieces.next().await.is_some() {}
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (begin, before) = (Instant::now(), cpu_secs());
    let mut round = 0;
    while begin.elapsed() < WATCHED {
        round += 1;
        let labels = NodeCommand::Label {
            node: NodeId(round % 100 + 1),
            set: [("round".to_owned(), round.to_string())].into(),
            unset: Vec::new(),
        };
        input
            .write(Command::Node(labels), None)
            .await
            .expect("there is room");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let share = (cpu_secs() - before) / begin.elapsed().as_secs_f64();
    for task in tasks {
        task.abort();
    }
    share
}

async fn run() {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut number = |otherwise: usize| {
        words
            .next()
            .map_or(otherwise, |word| word.parse().expect("a number"))
    };
    let (nodes, replicas) = (number(10_000), number(100_000));
    let serves = words.next().is_some_and(|word| word == "serve");
    let addr = words.next().filter(|_| serves);
    let dir = TempDir::new().expect("there is room");
    let state = State {
        feature_level: State::FEATURE_LEVEL,
        ..State::default()
    };
    let cancel = CancellationToken::new();
    let clock = Arc::new(SystemClock::new());
    let handle = spawn_with(cancel.clone(), state, clock, RuntimeOptions::default());
    fill(&handle, nodes, replicas).await;
    let api = api(&handle, &dir);
    let beside = Beside {
        page: Some(dhow_server::page::routes),
        ..Beside::default()
    };
    if let Some(addr) = addr {
        let addr: SocketAddr = addr.parse().expect("an address");
        let socket = dir.path().join("dhow.sock");
        println!(
            "token: DHOW_HOST=unix://{} dhow token create --role admin",
            socket.display()
        );
        let listeners = Listeners {
            socket: Some(socket),
            tcp: vec![addr],
            ..Listeners::default()
        };
        let bound = bind(&listeners).await.expect("the address is free");
        return serve_with(api, beside, bound, cancel).await;
    }
    let router = router_with(api.clone(), beside, Access::new(&api, None), cancel);
    let input = handle.input();
    println!(
        "{nodes} nodes, {replicas} replicas\n{:<60} {:>8} {:>8} {:>10}",
        "ms", "median", "worst", "bytes"
    );
    for place in [
        "/ui/",
        "/ui/nodes",
        "/ui/nodes?q=rack-7+zone=zone-2&sort=cpu",
        "/ui/nodes?page=100",
        "/ui/nodes/17",
        "/ui/deployments/deployment-0",
        "/ui/deployments/deployment-0/services/service-0?page=10",
        "/ui/deployments/deployment-0/replicas/service-0-default-500",
        "/ui/events?q=node",
    ] {
        measure(&router, &input, place).await;
    }
    let without = watch(&router, &input, 0).await;
    let with = watch(&router, &input, OPEN_PAGES).await;
    println!("of a core, five changes a second: {:.1} %", without * 100.0);
    println!("the same with {OPEN_PAGES} open pages: {:.1} %", with * 100.0);
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    runtime.block_on(run());
}
