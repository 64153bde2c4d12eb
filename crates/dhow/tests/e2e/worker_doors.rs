//! Who gets in as a worker, and who is told why not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use dhow_agent::session::grpc::{
    Connector, ConnectorFuture, Endpoint, FixedRoutes, GrpcOptions, GrpcSession, SessionStanding,
};
use dhow_core::amount::Amount;
use dhow_core::ids::NodeId;
use dhow_core::state::{NodeInfo, NodeRole};
use dhow_server::net::keys::{WorkerIdentity, WorkerKey, client_config_pinned};
use dhow_server::net::peer_http::dial_server;
use dhow_wire::WorkerBootstrapToken;
use dhow_wire::token::CaFingerprint;
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::support::{Cluster, Daemon, PATIENCE, Where, until};

/// Starts a worker that is refused, and gives what it said.
fn refused(cluster: &mut Cluster, token: &str, change: impl FnOnce(&mut Daemon)) -> String {
    let place = cluster.add_worker(token);
    let worker = &mut cluster.workers[place];
    change(worker);
    worker.begin();
    let ended = worker.ended();
    let said = worker.said();
    assert_eq!(ended.code(), Some(4), "{said}");
    said
}

fn changed_labels(worker: &mut Daemon, labels: &Value) {
    let mut config: Value = serde_json::from_str(worker.config.as_ref().unwrap()).unwrap();
    config["labels"] = labels.clone();
    worker.config = Some(config.to_string());
}

#[test]
fn every_refusal_of_a_token_has_its_own_words() {
    let mut cluster = Cluster::worker_tier("refusals", 3, 0, &json!({}));
    let other = Cluster::worker_tier("elsewhere", 3, 0, &json!({}));
    let good = cluster.worker_token(&[]);
    // Malformed: it is cut off.
    let said = refused(&mut cluster, &good[..good.len() / 2], |_| {});
    assert!(said.contains("malformed"), "{said}");
    let said = refused(&mut cluster, &signed_by_nobody(&good), |_| {});
    assert!(said.contains("bad signature"), "{said}");
    let short = cluster.worker_token(&["--ttl", "1s"]);
    thread::sleep(Duration::from_secs(2));
    let said = refused(&mut cluster, &short, |_| {});
    assert!(said.contains("expired"), "{said}");
    let foreign = other.worker_token(&[]);
    let said = refused(&mut cluster, &foreign, |_| {});
    assert!(said.contains("another cluster"), "{said}");
    // Revoked.
    let revoked = cluster.worker_token(&[]);
    let id = WorkerBootstrapToken::parse(&revoked).unwrap().nonce().to_string();
    cluster.nodes[0].dhow(&["token", "revoke", &id]).ends_with(0);
    let said = refused(&mut cluster, &revoked, |_| {});
    assert!(said.contains("revoked"), "{said}");
    // A label that the token does not allow; the token is good for the next one all the same.
    let labelled = cluster.worker_token(&["--label", "zone=a", "--label", "place"]);
    let said = refused(&mut cluster, &labelled, |worker| {
        changed_labels(worker, &json!({ "zone": "b" }));
    });
    assert!(said.contains("zone=b"), "{said}");
    let place = cluster.add_worker(&labelled);
    let labels = json!({ "zone": "a", "place": place.to_string() });
    changed_labels(&mut cluster.workers[place], &labels);
    cluster.workers[place].restart();
    cluster.learn_id(place);
    // Used up.
    let said = refused(&mut cluster, &labelled, |_| {});
    assert!(said.contains("used up"), "{said}");
    // None at all.
    let place = cluster.add_worker(&good);
    std::fs::remove_file(cluster.workers[place].scratch.path.join("token")).unwrap();
    cluster.workers[place].begin();
    assert_eq!(cluster.workers[place].ended().code(), Some(1));
    let listed = cluster.nodes[0].dhow(&["token", "ls", "--json"]).json();
    let of = |id: &str| {
        listed
            .as_array()
            .unwrap()
            .iter()
            .find(|token| token["id"] == id)
            .cloned()
            .unwrap()
    };
    let labelled = WorkerBootstrapToken::parse(&labelled)
        .unwrap()
        .nonce()
        .to_string();
    assert_eq!(
        (of(&labelled)["uses"].clone(), of(&labelled)["uses_left"].clone()),
        (json!(1), json!(0))
    );
    assert_eq!(
        (of(&id)["revoked"].clone(), of(&id)["uses_left"].clone()),
        (json!(true), json!(1))
    );
    other.finish();
    cluster.finish();
}

/// The same token with another signature: that stands between its first byte and its claims.
fn signed_by_nobody(token: &str) -> String {
    const IN_THE_SIGNATURE: usize = 20;
    let other = if token.as_bytes()[IN_THE_SIGNATURE] == b'A' {
        "B"
    } else {
        "A"
    };
    let mut changed = token.to_owned();
    changed.replace_range(IN_THE_SIGNATURE..=IN_THE_SIGNATURE, other);
    changed
}

#[test]
fn servers_that_do_not_answer_are_waited_for() {
    let mut cluster = Cluster::worker_tier("wait", 3, 0, &json!({}));
    let token = cluster.worker_token(&[]);
    for server in &mut cluster.nodes {
        server.kill9();
    }
    let place = cluster.add_worker(&token);
    cluster.workers[place].begin();
    until("it has tried and goes on", || {
        let tried = cluster.workers[place].said();
        (tried.matches("cannot be asked").count() >= 3).then_some(())
    });
    for server in &mut cluster.nodes {
        server.begin();
    }
    cluster.learn_id(place);
    cluster.until_complete();
    cluster.finish();
}

fn joining(token: &str) -> Vec<u8> {
    joining_as(token, 9)
}

/// Workers are told apart by what they say of themselves.
fn joining_as(token: &str, port: usize) -> Vec<u8> {
    let profile =
        json!({ "api_addr": format!("127.0.0.1:{port}"), "os": "linux", "arch": "x86_64", "cpu_total": 1 });
    json!({ "token": token, "profile": profile })
        .to_string()
        .into_bytes()
}

fn workers_listed(cluster: &Cluster) -> usize {
    let leader = cluster.until_leader();
    let listed = cluster.nodes[leader].dhow(&["node", "ls", "--json"]).json();
    let all = listed.as_array().unwrap().iter();
    all.filter(|node| node["role"] == "worker").count()
}

#[test]
fn a_token_for_one_lets_one_in_whatever_happens() {
    let mut cluster = Cluster::worker_tier("one", 3, 0, &json!({}));
    for (round, is_killed) in [false, true].into_iter().enumerate() {
        let token = cluster.worker_token(&[]);
        let (taken, leader) = (AtomicUsize::new(0), cluster.until_leader());
        let mut old = std::mem::replace(&mut cluster.nodes[leader], Daemon::placeholder());
        let sockets: Vec<_> = cluster.nodes.iter().map(Daemon::socket).collect();
        let leader_socket = old.socket();
        thread::scope(|scope| {
            for number in 0..20 {
                let (token, sockets, leader_socket) = (&token, &sockets, &leader_socket);
                let (taken, leader) = (&taken, leader);
                scope.spawn(move || {
                    let socket = match number % 3 == leader {
                        true => leader_socket,
                        false => &sockets[number % 3],
                    };
                    // A server that does not lead says so, and one that was killed nothing.
                    for _ in 0..50 {
                        let reply = crate::support::ask(
                            socket,
                            "POST",
                            "/api/v1/workers/register",
                            "application/json",
                            &joining_as(token, 100 + number),
                        );
                        match reply.map(|reply| reply.status) {
                            Ok(200) => {
                                taken.fetch_add(1, Ordering::Relaxed);
                                return;
                            }
                            Ok(401 | 403 | 409) => return,
                            Ok(_) | Err(_) => thread::sleep(Duration::from_millis(100)),
                        }
                    }
                });
            }
            if is_killed {
                thread::sleep(Duration::from_millis(30));
                old.kill9();
            }
        });
        if is_killed {
            old.restart();
        }
        cluster.nodes[leader] = old;
        until("all servers agree", || (cluster.leader().is_some()).then_some(()));
        // The answer to the one that was taken may have died with the leader.
        let taken = taken.into_inner();
        assert!(taken <= 1 && (is_killed || taken == 1), "{taken} were taken");
        assert_eq!(workers_listed(&cluster), round + 1);
    }
    drop(cluster);
}

struct Showing(ClientConfig);

impl Connector for Showing {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> ConnectorFuture<'a> {
        Box::pin(dial_server(&endpoint.address, self.0.clone()))
    }
}

fn info() -> NodeInfo {
    NodeInfo {
        role: NodeRole::Worker,
        api_addr: None,
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::default(),
        capacity: Amount::ZERO,
        runs_replicas: true,
        tries_settings: false,
        mounts_files: false,
        runs_steps: false,
        volumes: dhow_core::spec::VolumeSupport::Named,
        mesh_addr: None,
    }
}

/// How a session stands that shows this and claims to be that node, once a server has said something.
async fn standing(cluster: &Cluster, node: u64, config: ClientConfig, expected: &str) {
    let leader = cluster.until_leader();
    let routes = FixedRoutes(vec![Endpoint {
        node: None,
        address: cluster.worker_addrs()[leader].clone(),
    }]);
    let options = GrpcOptions::new(NodeId(node), info(), Arc::new(routes), Arc::new(Showing(config)));
    let session = GrpcSession::start(options);
    let mut standings = session.standing();
    let told = standings.wait_for(|standing| match standing {
        SessionStanding::Seeking { why } => why.as_deref().is_some_and(|why| why.contains(expected)),
        SessionStanding::Unknown => expected == "unknown",
        SessionStanding::Open { .. } => panic!("it was let in"),
    });
    let told = tokio::time::timeout(PATIENCE, told).await;
    assert!(told.is_ok(), "it stands: {}", *session.standing().borrow());
}

fn nobody(fingerprint: CaFingerprint) -> ClientConfig {
    let mut config = client_config_pinned(fingerprint).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

#[test]
fn a_worker_is_who_its_certificate_says() {
    let mut cluster = Cluster::worker_tier("who", 3, 2, &json!({}));
    let read = |cluster: &Cluster, place: usize| {
        let dir = cluster.workers[place].data_dir().join("worker/identity");
        let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        let key = WorkerKey::from_pem(&text("key.pem")).unwrap();
        let chain = format!("{}\n{}", text("cert.pem"), text("ca.pem"));
        Arc::new(WorkerIdentity::new(key, &chain).unwrap())
    };
    let (first, second) = (read(&cluster, 0), read(&cluster, 1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let other = second.node().0;
        standing(
            &cluster,
            other,
            first.client_config().unwrap(),
            "the certificate is of node",
        )
        .await;
        standing(&cluster, other, nobody(first.fingerprint()), "show a certificate").await;
        let stranger = CaFingerprint([7; 32]);
        standing(&cluster, other, nobody(stranger), "belongs to another cluster").await;
    });
    let id = first.node().0;
    cluster.power_off_worker(0);
    cluster.nodes[0]
        .dhow(&["node", "rm", &id.to_string(), "--force"])
        .ends_with(0);
    runtime.block_on(standing(&cluster, id, first.client_config().unwrap(), "unknown"));
    // What the worker's own door takes: servers, and nobody else.
    let door: SocketAddr = format!("127.0.0.1:{}", cluster.workers[1].api_port)
        .parse()
        .unwrap();
    runtime.block_on(async {
        let mine = dial_server(&door.to_string(), first.client_config().unwrap()).await;
        let stranger = dial_server(&door.to_string(), nobody(first.fingerprint())).await;
        assert!(mine.is_err() && stranger.is_err(), "a door is open");
    });
    let plain = reqwest_get(&format!("http://{door}/api/v1/internal/door/pulls"));
    assert_eq!(plain, 403);
    cluster.workers[0].begin();
    assert_eq!(cluster.workers[0].ended().code(), Some(4));
    cluster.finish();
}

fn reqwest_get(url: &str) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        reqwest_client(None)
            .get(url)
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    })
}

fn reqwest_client(pin: Option<CaFingerprint>) -> reqwest::Client {
    let config = client_config_pinned(pin.unwrap_or(CaFingerprint([0; 32]))).unwrap();
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .build()
        .unwrap()
}

/// What the worker says of the one replica that it runs.
fn running(node: u64, generation: &Value) -> Value {
    let container = json!({
        "service": "it", "deployment": "shop", "role": "default", "replica": 0, "state": "running",
        "generation": generation, "pid": 7,
    });
    json!({
        "node_id": node, "ts_ns": 1, "containers": [container],
        "resources": { "cpu_used": 0.0, "memory_used_bytes": 0, "gpu_used": 0 },
    })
}

#[test]
fn a_client_without_grpc_speaks_json() {
    let times = json!({ "heartbeat_min_ttl": 12, "heartbeat_grace": 7 });
    let cluster = Cluster::worker_tier("json", 3, 0, &times);
    let token = cluster.worker_token(&[]);
    let pin = WorkerBootstrapToken::parse(&token).unwrap().ca_fingerprint();
    let leader = &cluster.nodes[cluster.until_leader()];
    let base = format!("https://127.0.0.1:{}/api/v1/workers", leader.api_port);
    let client = reqwest_client(Some(pin));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let post = |path: &str, internal: Option<&str>, body: Vec<u8>| -> (u16, Value) {
        let request = client.post(format!("{base}/{path}")).body(body);
        let mut request = request.header("Content-Type", "application/json");
        if let Some(internal) = internal {
            request = request.header("X-Dhow-Internal-Token", internal);
        }
        runtime.block_on(async {
            let reply = request.send().await.unwrap();
            let status = reply.status().as_u16();
            (status, reply.json().await.unwrap())
        })
    };
    let (status, joined) = post("register", None, joining(&token));
    assert_eq!(status, 200, "{joined}");
    assert_eq!(
        (
            joined["heartbeat_ttl_secs"].clone(),
            joined["heartbeat_grace_secs"].clone()
        ),
        (json!(12), json!(7))
    );
    let (node, internal) = (
        joined["node_id"].as_u64().unwrap(),
        joined["internal_token"].as_str().unwrap(),
    );
    let poll = |last: u64| {
        json!({ "node_id": node, "last_revision": last, "max_wait_secs": 1 })
            .to_string()
            .into_bytes()
    };
    let (status, _) = post("poll", None, poll(0));
    assert_eq!(status, 401);
    let service = crate::support::Service::sleeper().replicas(1);
    let file = leader.deployment("shop", &[("it", service)]);
    leader.dhow(&["deploy", &file, "--detach"]).ends_with(0);
    let event = until("it is told its work", || {
        let (status, polled) = post("poll", Some(internal), poll(0));
        assert_eq!(status, 200, "{polled}");
        polled["events"].get(0).cloned()
    });
    assert_eq!(
        (event["kind"].clone(), event["service"].clone()),
        (json!("set"), json!("it"))
    );
    assert!(event["spec"].is_object(), "{event}");
    let report = running(node, &event["assignments"][0]["generation"]);
    let (status, ack) = post("status", Some(internal), report.to_string().into_bytes());
    assert_eq!(status, 200, "{ack}");
    assert!(ack["next_ttl_secs"].as_u64().unwrap() > 0);
    until("it is believed", || {
        let replicas = leader.replicas();
        (replicas.len() == 1 && replicas[0].runs() && replicas[0].node_id == Some(node)).then_some(())
    });
    drop(cluster);
}

#[test]
fn a_server_without_the_clusters_key_says_how_to_make_one() {
    let mut cluster = Cluster::prepare("keyless", 3, Where::Loopback, "worker-tier", &json!({}));
    let server = &mut cluster.nodes[0];
    std::fs::remove_file(server.scratch.path.join("cluster.key")).unwrap();
    server.begin();
    assert_eq!(server.ended().code(), Some(1));
    assert!(server.said().contains("dhow cluster keygen"), "{}", server.said());
}
