//! A control plane in this process with one node, whose agent does as the test says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use dhow_core::amount::Amount;
use dhow_core::command::{Command, NodeCommand};
use dhow_core::ids::{NodeId, ReplicaName};
use dhow_core::replica::ReplicaEvent;
use dhow_core::spec::policy::{FilePolicy, WordsOnly};
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_wire::api::{LogRecord, LogStream};
use dhow_wire::{ClusterModeName, Problem};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::api::{Access, Api, router};
use crate::clock::FakeClock;
use crate::net::identity::Peer;
use crate::net::node_door::ScriptedDoor;
use crate::net::peer_http::{NoPeers, PeerHttp};
use crate::net::refused_log::RefusedLog;
use crate::plane::cluster::{BarrierError, Cluster, Member, MembershipError, Newcomer, SingleNode};
use crate::plane::runtime::{EventStore, ReportBody, RuntimeHandle, RuntimeOptions, spawn_with};
use crate::plane::secrets::SecretBox;
use crate::plane::services::{ClusterIdentity, ServiceManager};

/// 2027-01-15 08:00:00 UTC.
pub const WALL_UNIX_SECS: i64 = 1_800_000_000;

pub const SHOP: &str = "version: v1\ndeployment: shop\nservices:\n  web:\n    image: nginx:1.27\n    \
                        scale: { mode: fixed, replicas: 2 }\n    rollout: { min_healthy: 0s }\n    \
                        endpoints: [{ name: http, protocol: http, port: 8080 }]\n";

pub struct World {
    pub clock: FakeClock,
    pub handle: RuntimeHandle,
    pub door: ScriptedDoor,
    pub api: Api,
    pub router: Router,
    pub end: CancellationToken,
    cancel: CancellationToken,
    seq: u64,
    _dir: TempDir,
}

impl World {
    pub async fn new() -> Self {
        Self::with(|_, _| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut RuntimeOptions, &Path)) -> Self {
        let dir = TempDir::new().unwrap();
        let clock = FakeClock::new(WALL_UNIX_SECS * 1_000);
        let mut options = RuntimeOptions {
            event_store: Some(EventStore::open(&dir.path().join("events")).unwrap()),
            plan_debounce_ms: 0,
            ..RuntimeOptions::default()
        };
        change(&mut options, dir.path());
        let (cancel, end) = (CancellationToken::new(), CancellationToken::new());
        // As a new cluster begins.
        let state = State {
            feature_level: State::FEATURE_LEVEL,
            ..State::default()
        };
        let handle = spawn_with(cancel.clone(), state, Arc::new(clock.clone()), options);
        let door = ScriptedDoor::default();
        door.set_digest("nginx:1.27", &digest('1'));
        door.set_digest("nginx:1.28", &digest('2'));
        let identity = ClusterIdentity {
            mode: ClusterModeName::SingleNode,
            node_id: NodeId(1),
        };
        let (shared_clock, shared_door) = (Arc::new(clock.clone()), Arc::new(door.clone()));
        let api = Api {
            manager: ServiceManager::new(handle.view(), shared_clock, shared_door, identity),
            input: handle.input(),
            event_log: handle.event_log(),
            secrets: Arc::new(SecretBox::open(dir.path()).unwrap()),
            cluster: Arc::new(SingleNode {
                node: NodeId(1),
                api_addr: Some(([127, 0, 0, 1], 3669).into()),
            }),
            peers: PeerHttp::new(Arc::new(NoPeers)),
            worker_tokens: None,
            renew_expired_secs: 7 * 86_400,
            orders_certificates: false,
            data_dir: None,
            refused: RefusedLog::new(Some(dir.path()), Arc::new(clock.clone())),
            policy: Arc::new(FilePolicy {
                policy: Default::default(),
                host: WordsOnly { runs_as_root: true },
            }),
            notify: Default::default(),
        };
        let router = router(api.clone(), Access::new(&api, None), end.clone());
        let world = Self {
            clock,
            handle,
            door,
            api,
            router,
            end,
            cancel,
            seq: 0,
            _dir: dir,
        };
        world.register(1).await;
        world
    }

    /// The same daemon with a policy.
    pub fn under(mut self, policy: dhow_core::spec::Policy) -> Self {
        let host = WordsOnly { runs_as_root: true };
        self.api.policy = Arc::new(FilePolicy { policy, host });
        self.router = router(self.api.clone(), Access::new(&self.api, None), self.end.clone());
        self
    }

    /// A node that runs replicas.
    pub async fn register(&self, node: u64) {
        let info = NodeInfo {
            role: NodeRole::Peer,
            api_addr: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Arc::new(BTreeMap::from([("zone".into(), "a".into())])),
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
        let command = NodeCommand::Register {
            node: NodeId(node),
            info: Arc::new(info),
        };
        self.handle
            .input()
            .write(Command::Node(command), None)
            .await
            .unwrap();
    }

    pub fn state(&self) -> Arc<State> {
        self.handle.view().state()
    }

    /// Waits until the state is so.
    pub async fn wait_for(&self, mut is_so: impl FnMut(&State) -> bool) -> Arc<State> {
        let mut states = self.handle.view().states();
        states.wait_for(|state| is_so(state)).await.unwrap().clone()
    }

    /// Waits until so many replicas are placed.
    pub async fn wait_for_replicas(&self, count: usize) {
        self.wait_for(|state| state.replicas.len() == count).await;
    }

    /// Something happens to the replicas that the test chooses, one after the other.
    pub async fn happens(&mut self, choose: impl Fn(&ReplicaName) -> bool, events: &[ReplicaEvent]) {
        let state = self.state();
        let names = state.replicas.keys().filter_map(|key| state.replica_name(key));
        let names: Vec<ReplicaName> = names.filter(choose).collect();
        assert!(!names.is_empty(), "nothing happens to nobody");
        let all = names
            .iter()
            .flat_map(|name| events.iter().map(move |event| (name.clone(), event.clone())));
        let events: Vec<_> = all.collect();
        let first_seq = self.seq + 1;
        self.seq += events.len() as u64;
        let body = ReportBody::Events { first_seq, events };
        let input = self.handle.input();
        input.report(NodeId(1), None, 0, body).await.unwrap();
    }

    /// Deploys, and brings everything up.
    pub async fn deploy_shop(&mut self) {
        let reply = self.post("/api/v1/deployments", SHOP).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        self.wait_for_replicas(2).await;
        self.happens(|_| true, &start_events()).await;
        self.wait_for(|state| state.deployments.values().all(|known| !known.is_under_way()))
            .await;
    }

    pub async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Reply {
            status: parts.status,
            headers: parts.headers,
            body: body.to_vec(),
        }
    }

    pub async fn call(&self, method: Method, path: &str, body: &str) -> Reply {
        let kind = media_type(path, body);
        let call = request(method, path).header("content-type", kind);
        self.send(call.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, "").await
    }

    pub async fn post(&self, path: &str, body: &str) -> Reply {
        self.call(Method::POST, path, body).await
    }

    /// A streamed answer, piece by piece.
    pub async fn open(&self, request: Request<Body>) -> Stream {
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Stream {
            pieces: response.into_body().into_data_stream().boxed(),
            text: String::new(),
        }
    }

    pub async fn follow(&self, path: &str) -> Stream {
        self.open(request(Method::GET, path).body(Body::empty()).unwrap())
            .await
    }

    /// A replica writes a line.
    pub fn writes(&self, replica: &str, time_unix_us: i64, text: &str) {
        self.writes_to(LogStream::Stdout, replica, time_unix_us, text);
    }

    pub fn writes_to(&self, stream: LogStream, replica: &str, time_unix_us: i64, text: &str) {
        self.door.write(LogRecord {
            deployment: "shop".into(),
            replica: replica.into(),
            node_id: 1,
            time_unix_us,
            stream,
            text: text.into(),
        });
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.end.cancel();
        self.cancel.cancel();
    }
}

pub fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

/// From placed to healthy.
pub fn start_events() -> [ReplicaEvent; 4] {
    [
        ReplicaEvent::PullBegan,
        ReplicaEvent::StartBegan,
        ReplicaEvent::Started { pid: 42 },
        ReplicaEvent::BecameHealthy,
    ]
}

/// What a body is sent as.
pub fn media_type(path: &str, body: &str) -> &'static str {
    if path.starts_with("/api/v1/secrets/") {
        "application/octet-stream"
    } else if matches!(path, "/api/v1/deployments" | "/api/v1/plan") && !body.starts_with('{') {
        "application/yaml"
    } else {
        "application/json"
    }
}

/// As root on the Unix socket, unless something else is said.
pub fn request(method: Method, path: &str) -> axum::http::request::Builder {
    Request::builder()
        .extension(Peer::Unix { uid: 0 })
        .method(method)
        .uri(path)
        .header("host", "localhost")
}

#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json<T: DeserializeOwned>(&self) -> T {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/json");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// A problem with this status, whatever its body says besides.
    pub fn problem(&self, status: u16) -> Problem {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem: Problem = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem.status, status);
        assert!(!problem.detail.is_empty() && !problem.code.is_empty());
        problem
    }
}

/// One server-sent event.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Sent {
    pub id: String,
    pub event: String,
    pub data: String,
}

impl Sent {
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.data).unwrap()
    }
}

pub struct Stream {
    pieces: BoxStream<'static, Result<axum::body::Bytes, axum::Error>>,
    text: String,
}

impl Stream {
    /// Up to a mark; none at the end.
    async fn until(&mut self, mark: &str) -> Option<String> {
        loop {
            if let Some((first, rest)) = self.text.split_once(mark) {
                let (first, rest) = (first.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(first);
            }
            let piece = self.pieces.next().await?.unwrap();
            self.text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }

    /// The next server-sent event; none at the end.
    pub async fn next(&mut self) -> Option<Sent> {
        loop {
            let block = self.until("\n\n").await?;
            let mut sent = Sent::default();
            for line in block.lines() {
                match line.split_once(": ").or(line.split_once(':')) {
                    Some(("id", text)) => sent.id = text.into(),
                    Some(("event", text)) => sent.event = text.into(),
                    Some(("data", text)) => sent.data = text.into(),
                    Some(_) | None => {}
                }
            }
            if sent != Sent::default() {
                return Some(sent);
            }
        }
    }

    /// The next line as a record; none at the end.
    pub async fn record(&mut self) -> Option<LogRecord> {
        let line = self.until("\n").await?;
        Some(serde_json::from_str(&line).unwrap())
    }

    pub async fn rest(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        while let Some(sent) = self.next().await {
            all.push(sent);
        }
        all
    }
}

/// A raft cluster whose membership does not change: what this server, number 1, is told of the others.
pub struct FixedCluster {
    pub members: Vec<Member>,
    /// Whether the others confirm that it leads.
    pub leads: bool,
}

impl Cluster for FixedCluster {
    fn mode(&self) -> ClusterModeName {
        ClusterModeName::Raft
    }

    fn node_id(&self) -> NodeId {
        NodeId(1)
    }

    fn members(&self) -> Vec<Member> {
        self.members.clone()
    }

    fn barrier(&self) -> BoxFuture<'_, Result<(), BarrierError>> {
        let confirmed = self.leads.then_some(()).ok_or(BarrierError::Ended);
        Box::pin(std::future::ready(confirmed))
    }

    fn add(&self, _: Newcomer) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(std::future::ready(Err(MembershipError::NotLeader)))
    }

    fn remove(&self, _: NodeId, _: bool) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(std::future::ready(Err(MembershipError::NotLeader)))
    }

    fn hand_over(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
}
