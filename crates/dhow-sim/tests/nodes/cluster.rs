//! Servers of a test.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::command::{ClusterCommand, Command, DeploymentCommand};
use dhow_core::ids::{DeploymentName, NodeId, ServiceName};
use dhow_core::lease::AdaptiveTtlConfig;
use dhow_core::spec::{DeploymentSpec, ServiceSpec};
use dhow_core::state::State;
use dhow_server::clock::{Clock, FakeClock, SystemClock};
use dhow_server::gateway::{Accepted, GatewayOptions, NodeGateway, serve};
use dhow_server::net::identity::Identity;
use dhow_server::net::identity::Peer;
use dhow_server::net::tunnels::Tunnels;
use dhow_server::plane::leases::{LeaseOptions, Leases};
use dhow_server::plane::runtime::{Applied, RuntimeHandle, RuntimeOptions, spawn_with};
use dhow_server::plane::secrets::SecretBox;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::near_door::NearDoors;
use crate::shared_log::SharedLog;

/// Nothing in a test takes this long but what never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where real time passes, nodes are not kept waiting for a minute.
const MOVE_AFTER_MS: u64 = 1_000;

/// One server.
pub struct Server {
    pub id: u64,
    pub addr: SocketAddr,
    pub handle: RuntimeHandle,
    pub leases: Leases,
    pub gateway: NodeGateway,
    pub secrets: Arc<SecretBox>,
    pub end: CancellationToken,
    options: GatewayOptions,
    doors: Option<Arc<NearDoors>>,
    /// Where those who come are served; nowhere while the door is closed.
    incoming: watch::Sender<Option<mpsc::Sender<Accepted>>>,
}

/// Several servers in the process of the test, on one shared log.
pub struct Cluster {
    /// Stands still until it is moved; real time passes where all servers hold sessions.
    pub clock: FakeClock,
    pub log: SharedLog,
    pub servers: Vec<Server>,
    _dir: TempDir,
}

impl Cluster {
    /// So many servers, the first of which leads and alone takes sessions.
    pub async fn start(count: usize) -> Self {
        let clock = FakeClock::new(1_800_000_000_000);
        Self::start_with(count, clock.clone(), Arc::new(clock), None).await
    }

    /// So many servers that all hold sessions, the first of which leads.
    pub async fn start_holding(count: usize) -> Self {
        let clock = FakeClock::new(1_800_000_000_000);
        let doors = Some(Arc::default());
        Self::start_with(count, clock, Arc::new(SystemClock::new()), doors).await
    }

    async fn start_with(
        count: usize,
        fake: FakeClock,
        clock: Arc<dyn Clock>,
        doors: Option<Arc<NearDoors>>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (log, logs) = SharedLog::new(count);
        let mut listeners = Vec::new();
        for _ in 0..count {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let addresses: BTreeMap<NodeId, String> = (1..)
            .zip(&listeners)
            .map(|(id, listener)| (NodeId(id), listener.local_addr().unwrap().to_string()))
            .collect();
        let secrets = Arc::new(SecretBox::open(dir.path()).unwrap());
        let mut servers = Vec::new();
        for ((id, runtime_log), listener) in (1..).zip(logs).zip(listeners) {
            let options = RuntimeOptions {
                log: Some(runtime_log),
                plan_debounce_ms: 0,
                ..RuntimeOptions::default()
            };
            let end = CancellationToken::new();
            let handle = spawn_with(end.clone(), State::default(), Arc::clone(&clock), options);
            servers.push(Server::start(
                id,
                handle,
                listener,
                &clock,
                &secrets,
                (addresses.clone(), doors.clone()),
                end,
            ));
        }
        let cluster = Self {
            clock: fake,
            log,
            servers,
            _dir: dir,
        };
        cluster.log.elect(Some(1));
        cluster.led_by(0).await;
        let bootstrap = ClusterCommand::Bootstrap {
            cluster_id: "test".into(),
            feature_level: State::FEATURE_LEVEL,
            nodes_limit: Some(State::NODES_LIMIT),
        };
        cluster.write(Command::Cluster(bootstrap)).await;
        cluster
    }

    /// Waits until this server keeps the leases.
    pub async fn led_by(&self, at: usize) {
        let mut terms = self.servers[at].leases.terms();
        let leading = tokio::time::timeout(PATIENCE, terms.wait_for(Option::is_some));
        leading.await.expect("it leads in the end").unwrap();
    }

    fn leader(&self) -> &Server {
        let leading = |server: &&Server| server.handle.view().leadership().is_here;
        self.servers.iter().find(leading).expect("somebody leads")
    }

    pub async fn write(&self, command: Command) -> Applied {
        self.leader().handle.input().write(command, None).await.unwrap()
    }

    pub async fn deploy(&self, services: &[(&str, ServiceSpec)]) {
        let services = services
            .iter()
            .map(|(name, spec)| (ServiceName::new(name).unwrap(), Arc::new(spec.clone())));
        let spec = DeploymentSpec {
            version: Default::default(),
            deployment: DeploymentName::new("shop").unwrap(),
            services: services.collect(),
            scaled: Default::default(),
            configs: Default::default(),
        };
        self.write(Command::Deployment(DeploymentCommand::Deploy {
            spec: Arc::new(spec),
            author: "test".into(),
            wall_unix_secs: 0,
            force: false,
        }))
        .await;
    }

    pub fn state(&self) -> Arc<State> {
        self.leader().handle.view().state()
    }

    /// Waits until the leader's state is so.
    pub async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) -> Arc<State> {
        let mut states = self.leader().handle.view().states();
        let found = tokio::time::timeout(PATIENCE, states.wait_for(|state| wanted(state))).await;
        match found {
            Ok(state) => state.unwrap().clone(),
            Err(_) => panic!("never came: {what}\n{:#?}", self.state().replicas),
        }
    }

    /// Lets time pass for the servers, in steps that none of their timers misses.
    pub async fn pass(&self, span_ms: u64) {
        for _ in 0..span_ms / 500 {
            let begun = self.clock.sleeps_begun();
            self.clock.advance(500);
            self.clock.wait_for_sleeps_begun(begun + 1).await;
        }
    }
}

impl Server {
    fn start(
        id: u64,
        handle: RuntimeHandle,
        listener: TcpListener,
        clock: &Arc<dyn Clock>,
        secrets: &Arc<SecretBox>,
        (addresses, doors): (BTreeMap<NodeId, String>, Option<Arc<NearDoors>>),
        end: CancellationToken,
    ) -> Self {
        let clock = Arc::clone(clock);
        let own = doors.is_some().then_some(NodeId(id));
        // Where real time passes, a test waits for what ends.
        let config = AdaptiveTtlConfig {
            grace_secs: if doors.is_some() { 3 } else { 10 },
            ..AdaptiveTtlConfig::default()
        };
        let server_ids: BTreeSet<NodeId> = addresses.keys().copied().collect();
        let leases = Leases::new(LeaseOptions {
            own,
            config,
            clock: Arc::clone(&clock),
            view: handle.view(),
            input: handle.input(),
            event_log: handle.event_log(),
            contact: None,
        });
        tokio::spawn(leases.clone().run(end.clone()));
        let options = GatewayOptions {
            view: handle.view(),
            input: handle.input(),
            clock: Arc::clone(&clock),
            leases: leases.clone(),
            secrets: Arc::clone(secrets),
            session_address: Arc::new(move |node| addresses.get(&node).cloned()),
            workers: None,
            members: Arc::new({
                let server_ids = server_ids.clone();
                move || server_ids.clone()
            }),
            server_ids: Arc::new(move || server_ids.clone()),
            carries_assignments: true,
            tickets: None,
            tunnels: Tunnels::default(),
            reach: None,
            leader_door: doors.clone().map(|doors| doors.of(NodeId(id))),
            move_after_ms: MOVE_AFTER_MS,
            end: end.child_token(),
        };
        let addr = listener.local_addr().unwrap();
        let (incoming, taken) = watch::channel(None);
        tokio::spawn(accept(listener, taken, end.clone()));
        let mut server = Self {
            id,
            addr,
            handle,
            leases,
            gateway: NodeGateway::new(options.clone()),
            secrets: Arc::clone(secrets),
            end,
            options,
            doors,
            incoming,
        };
        server.open_door();
        server
    }

    /// Its sessions end, and nobody is let in.
    pub fn close_door(&self) {
        self.incoming.send_replace(None);
        self.options.end.cancel();
    }

    /// Nodes are let in, by a door that knows nothing of those before.
    pub fn open_door(&mut self) {
        self.options.end = self.end.child_token();
        self.gateway = NodeGateway::new(self.options.clone());
        if let Some(doors) = &self.doors {
            doors.add(NodeId(self.id), self.gateway.clone());
            tokio::spawn(self.gateway.clone().hold(self.options.end.clone()));
        }
        let (sender, incoming) = mpsc::channel(16);
        let (clock, end) = (Arc::clone(&self.options.clock), self.options.end.clone());
        tokio::spawn(serve(self.gateway.clone(), incoming, clock, end));
        self.incoming.send_replace(Some(sender));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    incoming: watch::Receiver<Option<mpsc::Sender<Accepted>>>,
    end: CancellationToken,
) {
    loop {
        let (mut stream, addr) = tokio::select! {
            accepted = listener.accept() => accepted.unwrap(),
            () = end.cancelled() => return,
        };
        let Some(incoming) = incoming.borrow().clone() else {
            continue;
        };
        // Here stands the word of the relay in place of a certificate.
        let Ok(node) = stream.read_u64().await else {
            continue;
        };
        let accepted = Accepted {
            stream: Box::new(stream),
            peer: Peer::Tls {
                addr,
                identity: Some(Identity::Member(NodeId(node))),
            },
        };
        // A door that closes in this moment takes nobody.
        let _ = incoming.send(accepted).await;
    }
}
