//! The past of a cluster with many replicas: how long an answer about any revision takes, what it costs on the disk, and what
//! writers notice of it.
//!
//! `past [NODES] [REPLICAS] [ENTRIES]`. The limits that are looked at: status at any revision within a second (p95), and the
//! disk within its bound.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use dhow_core::amount::Amount;
use dhow_core::command::{Command, DeploymentCommand, NodeCommand};
use dhow_core::ids::{NodeId, ReplicaName};
use dhow_core::replica::ReplicaEvent;
use dhow_core::spec::policy::{FilePolicy, WordsOnly};
use dhow_core::state::{NodeInfo, NodeRole};
use dhow_server::api::{Access, Api, router};
use dhow_server::clock::{Clock, SystemClock};
use dhow_server::net::identity::Peer;
use dhow_server::net::node_door::ScriptedDoor;
use dhow_server::net::peer_http::{NoPeers, PeerHttp};
use dhow_server::net::refused_log::RefusedLog;
use dhow_server::plane::cluster::SingleNode;
use dhow_server::plane::log::store::StoreOptions;
use dhow_server::plane::past::{PAST_DIR, PastOptions};
use dhow_server::plane::runtime::{InputSender, ReportBody, RuntimeHandle, open_local, spawn_with};
use dhow_server::plane::secrets::SecretBox;
use dhow_server::plane::services::{ClusterIdentity, ServiceManager};
use dhow_wire::{ClusterModeName, Sender, parse_deployment_under};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const REPLICAS_A_SERVICE: usize = 1_000;
const QUESTIONS: usize = 200;
/// Reports that are on their way at a time: the inbox takes more.
const WRITERS: usize = 64;

fn node(number: usize) -> Command {
    let info = NodeInfo {
        role: NodeRole::Worker,
        api_addr: Some(format!("10.{}.{}.7:3669", number / 250, number % 250).into()),
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::default(),
        capacity: Amount {
            cpu_milli: 64_000,
            memory_bytes: 256 << 30,
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

fn deployment(services: usize) -> Command {
    let service = format!(
        "{{ runtime: process, command: [x], resources: {{ cpu: 0.1, memory: 64Mi }}, scale: {{ mode: fixed, \
         replicas: {REPLICAS_A_SERVICE} }} }}"
    );
    let services: String = (0..services)
        .map(|place| format!("  service-{place}: {service}\n"))
        .collect();
    let file = format!("version: v1\ndeployment: big\nservices:\n{services}");
    let spec = parse_deployment_under(&file, "bench", Sender::Caller, &|_| Default::default());
    Command::Deployment(DeploymentCommand::Deploy {
        spec: Arc::new(spec.expect("the file is right")),
        author: "bench".into(),
        wall_unix_secs: 1_800_000_000,
        force: false,
    })
}

/// One node's replicas and how much it has told of them.
struct Teller {
    node: NodeId,
    names: Vec<ReplicaName>,
    seq: u64,
}

impl Teller {
    async fn tell(&mut self, input: &InputSender, events: Vec<(ReplicaName, ReplicaEvent)>) {
        let first_seq = self.seq + 1;
        self.seq += events.len() as u64;
        let body = ReportBody::Events { first_seq, events };
        input.report(self.node, None, 1, body).await.expect("it is taken");
    }
}

/// Everything is placed, and runs.
async fn fill(handle: &RuntimeHandle, nodes: usize, replicas: usize) -> Vec<Teller> {
    let input = handle.input();
    for number in 0..nodes {
        input.write(node(number), None).await.expect("there is room");
    }
    let services = replicas.div_ceil(REPLICAS_A_SERVICE);
    input.write(deployment(services), None).await.expect("it fits");
    let mut states = handle.view().states();
    let state = states.wait_for(|state| state.replicas.len() >= replicas).await;
    let state = Arc::clone(&state.expect("the runtime goes on"));
    let mut tellers = Vec::new();
    for node in state.nodes.values() {
        let names = node.replica_keys().filter_map(|key| state.replica_name(&key));
        let mut teller = Teller {
            node: node.id,
            names: names.collect(),
            seq: 0,
        };
        let came = [
            ReplicaEvent::StartBegan,
            ReplicaEvent::Started { pid: 42 },
            ReplicaEvent::BecameHealthy,
        ];
        let events = teller
            .names
            .iter()
            .flat_map(|name| came.clone().map(|event| (name.clone(), event)));
        let events = events.collect();
        teller.tell(&input, events).await;
        tellers.push(teller);
    }
    tellers
}

/// Health that changes, one entry each; how many a second.
async fn churn(handle: &RuntimeHandle, tellers: &mut [Teller], entries: usize) -> f64 {
    let begin = Instant::now();
    let mut told = 0;
    while told < entries {
        for group in tellers.chunks_mut(WRITERS) {
            let input = handle.input();
            let round = told;
            let all = group.iter_mut().map(|teller| {
                let name = teller.names.get(round % teller.names.len().max(1)).cloned();
                let input = &input;
                async move {
                    let Some(name) = name else {
                        return 0;
                    };
                    let message = "answers 503".into();
                    let ill = ReplicaEvent::BecameUnhealthy { message };
                    teller.tell(input, vec![(name.clone(), ill)]).await;
                    teller
                        .tell(input, vec![(name, ReplicaEvent::BecameHealthy)])
                        .await;
                    2
                }
            });
            told += futures_util::future::join_all(all)
                .await
                .into_iter()
                .sum::<usize>()
                .max(1);
        }
    }
    told as f64 / begin.elapsed().as_secs_f64()
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

/// Milliseconds until the answer is there, and its bytes.
async fn ask(router: &Router, place: &str) -> (f64, usize) {
    let request = Request::builder().extension(Peer::Unix { uid: 0 }).uri(place);
    let request = request.body(Body::empty()).expect("the address is right");
    let begin = Instant::now();
    let answer = router.clone().oneshot(request).await.expect("it answers");
    assert!(answer.status().is_success(), "{place}: {}", answer.status());
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
    let bytes = body.expect("it is whole").len();
    (begin.elapsed().as_secs_f64() * 1_000.0, bytes)
}

/// A cluster with a past or without one, filled, and how many entries a second its writers came to.
async fn cluster(
    keeps: bool,
    (nodes, replicas, entries): (usize, usize, usize),
) -> (TempDir, RuntimeHandle, f64) {
    let dir = TempDir::new().expect("there is room");
    let opened = open_local(dir.path(), StoreOptions::default()).expect("the directory is new");
    let mut options = opened.options;
    options.past = keeps.then(|| PastOptions::new(dir.path().join(PAST_DIR)));
    let clock = Arc::new(SystemClock::new());
    let handle = spawn_with(CancellationToken::new(), opened.state, clock, options);
    let mut leads = handle.view().leaderships();
    leads.wait_for(|now| now.is_here).await.expect("it leads");
    let mut tellers = fill(&handle, nodes, replicas).await;
    let rate = churn(&handle, &mut tellers, entries).await;
    (dir, handle, rate)
}

async fn run() {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut number = |otherwise: usize| {
        words
            .next()
            .map_or(otherwise, |word| word.parse().expect("a number"))
    };
    let size = (number(500), number(10_000), number(40_000));
    let (without_dir, without_handle, without) = cluster(false, size).await;
    drop((without_handle, without_dir));
    let (dir, handle, with) = cluster(true, size).await;
    println!("{} nodes, {} replicas, {} entries", size.0, size.1, size.2);
    println!("entries a second: {without:.0} without a past, {with:.0} with one");
    let api = api(&handle, &dir);
    let router = router(api.clone(), Access::new(&api, None), CancellationToken::new());
    let newest = handle.view().state().revision.0;
    ask(&router, &format!("/api/v1/past/at?revision={newest}")).await;
    let index = handle.view().past().expect("it is kept").index();
    println!(
        "{} chapters, {:.1} MiB, {:.0} bytes an entry",
        index.chapters.len(),
        index.bytes() as f64 / (1 << 20) as f64,
        index.bytes() as f64 / newest as f64
    );
    println!(
        "{:<44} {:>8} {:>8} {:>8} {:>10}",
        "ms", "p50", "p95", "worst", "bytes"
    );
    for place in ["/api/v1/deployments?at=", "/api/v1/replicas?at="] {
        let mut times = Vec::new();
        let mut bytes = 0;
        for question in 0..QUESTIONS {
            // Far apart, so that nothing is remembered.
            let revision = (question as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % newest;
            let (took, size) = ask(&router, &format!("{place}{revision}")).await;
            times.push(took);
            bytes = bytes.max(size);
        }
        times.sort_by(f64::total_cmp);
        println!(
            "{place:<44} {:>8.1} {:>8.1} {:>8.1} {bytes:>10}",
            times[QUESTIONS / 2],
            times[QUESTIONS * 95 / 100],
            times[QUESTIONS - 1]
        );
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    runtime.block_on(run());
}
