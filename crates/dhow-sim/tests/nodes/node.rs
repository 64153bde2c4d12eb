//! Nodes of a test: an agent on a fake host, with a session over a relay.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dhow_agent::session::grpc::{Backoff, Endpoint, FixedRoutes, GrpcOptions, GrpcSession, SessionStanding};
use dhow_agent::{Agent, AgentOptions, Drivers, NoBalancer, Orders, Returning, Session};
use dhow_core::amount::Amount;
use dhow_core::ids::NodeId;
use dhow_core::spec::{CommandSpec, Runtime, ScaleSpec, ServiceSpec};
use dhow_core::state::{NodeInfo, NodeRole};
use dhow_driver::fake::FakeHost;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::relay::Relay;

/// An agent with a session to the servers of the test. It ends when it is dropped, as `kill -9` would end it; its host
/// goes on.
pub struct Node {
    pub id: NodeId,
    pub host: FakeHost,
    pub relay: Relay,
    pub session: Arc<GrpcSession>,
    agent: JoinHandle<()>,
    _dir: TempDir,
}

/// What a node says of itself.
pub fn info(zone: &str) -> NodeInfo {
    NodeInfo {
        role: NodeRole::Server,
        api_addr: None,
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::new(BTreeMap::from([("zone".to_owned(), zone.to_owned())])),
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
    }
}

/// Options of a session that is quick to try again.
pub fn options(cluster: &Cluster, id: u64, zone: &str, relay: &Relay) -> GrpcOptions {
    let servers = cluster.servers.iter().map(|server| Endpoint {
        node: Some(NodeId(server.id)),
        address: server.addr.to_string(),
    });
    let routes = FixedRoutes(servers.collect());
    GrpcOptions {
        backoff: Backoff {
            first: Duration::from_millis(10),
            longest: Duration::from_millis(100),
        },
        report_gap: Duration::ZERO,
        ..GrpcOptions::new(NodeId(id), info(zone), Arc::new(routes), Arc::new(relay.clone()))
    }
}

impl Node {
    pub async fn start(cluster: &Cluster, id: u64, zone: &str) -> Self {
        let relay = Relay::of(NodeId(id));
        let options = options(cluster, id, zone, &relay);
        Self::start_with(id, relay, options).await
    }

    /// The same with options of its own.
    pub async fn start_with(id: u64, relay: Relay, options: GrpcOptions) -> Self {
        let host = FakeHost::default();
        let dir = tempfile::tempdir().unwrap();
        let session = Arc::new(GrpcSession::start(options));
        let agent = Agent::open(AgentOptions {
            node: NodeId(id),
            mesh: None,
            dir: dir.path().join("agent"),
            volumes_dir: dir.path().join("volumes"),
            files_dir: dir.path().join("files"),
            drivers: Drivers::same(Arc::new(host.driver())),
            balancer: Arc::new(NoBalancer),
            session: Arc::clone(&session) as Arc<dyn Session>,
            orders: Arc::clone(&session) as Arc<dyn Orders>,
            policy: Default::default(),
            returning: Returning::Alone,
        });
        let agent = agent.await.unwrap();
        let agent = tokio::spawn(async move { agent.run(CancellationToken::new()).await.unwrap() });
        Self {
            id: NodeId(id),
            host,
            relay,
            session,
            agent,
            _dir: dir,
        }
    }

    /// Waits until the session stands so.
    pub async fn stands(&self, mut wanted: impl FnMut(&SessionStanding) -> bool) -> SessionStanding {
        let mut standing = self.session.standing();
        let found = standing.wait_for(|standing| wanted(standing));
        let found = tokio::time::timeout(Duration::from_secs(60), found).await;
        found.expect("the session stands so in the end").unwrap().clone()
    }

    pub async fn is_open(&self) {
        self.stands(|standing| matches!(standing, SessionStanding::Open { .. }))
            .await;
    }

    /// What runs on its host, by name.
    pub fn runs(&self) -> Vec<String> {
        let mut names: Vec<String> = self.host.names().iter().map(ToString::to_string).collect();
        names.sort();
        names
    }

    /// Waits until its host runs exactly this.
    pub async fn until_runs(&self, wanted: &[&str]) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while self.runs() != wanted {
            assert!(
                tokio::time::Instant::now() < deadline,
                "{:?} and not {wanted:?}",
                self.runs()
            );
            // The host is polled: it has no way to tell.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.agent.abort();
    }
}

/// Follows a value until it is so.
pub async fn until<T: Clone>(mut watched: watch::Receiver<T>, wanted: impl FnMut(&T) -> bool) -> T {
    let found = tokio::time::timeout(Duration::from_secs(60), watched.wait_for(wanted)).await;
    found.expect("it comes in the end").unwrap().clone()
}

/// A service of the fake host.
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
        scale: ScaleSpec::Fixed { replicas },
        env: env.collect(),
        ..ServiceSpec::default()
    }
}
