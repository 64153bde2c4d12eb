//! The plane of a peer of a static cluster: its copy of the log, heartbeats and copies over HTTP, the desk that takes
//! scale requests, and, while it leads, the peers' leases and what those of an older version are told.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::lease::{AdaptiveTtlConfig, MOVE_AFTER_MS};
use dhow_core::spec::ServiceSpec;
use dhow_core::state::{NodeInfo, NodeRole};
use dhow_server::api::{Beside, StaticRoutes, static_routes};
use dhow_server::clock::{Clock, SystemClock};
use dhow_server::gateway::{self, GatewayOptions, NodeGateway, TicketIssuer};
use dhow_server::net::peer_http::{PeerHttp, TlsDialer};
use dhow_server::net::peers::tls::ClusterIdCell;
use dhow_server::net::refused_log::RefusedLog;
use dhow_server::net::tunnels::Tunnels;
use dhow_server::plane::cluster::{Cluster, StaticCluster};
use dhow_server::plane::leases::{LeaseOptions, Leases, PeerContact};
use dhow_server::plane::log::copied::{CopiedLog, CopiedOptions, CopiedTimings};
use dhow_server::plane::log::store::StoreOptions;
use dhow_server::plane::runtime::{self, OpenedCopied, RuntimeHandle, RuntimeView};
use dhow_server::plane::scale::{
    DeskOptions, Dispatcher, DispatcherOptions, OwnWork, OwnWorkOptions, ScaleDesk,
};
use dhow_server::plane::secrets::SecretBox;
use dhow_server::plane::static_peers::{StaticNetwork, tell_conflicts};
use dhow_server::plane::storage::Storage;
use dhow_wire::{DaemonConfig, StaticPeer};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::directory_feed::DirectoryFeed;
use super::node_info::node_info;
use super::own_session::{self, OwnCopy};
use super::plane::{Plane, with_sources};
use super::raft;
use super::security::Security;

/// The folder below the data directory: the log, what this node was told, and what a losing half wrote.
pub const STATIC_DIR: &str = "static";

/// How long a write waits for the copy of a peer that is there and does not answer.
const COPY_TIMEOUT_MS: u64 = 2_000;

/// The times of the configuration.
pub fn timings(heartbeat_interval: Duration, failure_threshold: Duration) -> CopiedTimings {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    CopiedTimings {
        heartbeat_ms: ms(heartbeat_interval),
        threshold_ms: ms(failure_threshold),
        copy_timeout_ms: COPY_TIMEOUT_MS,
    }
}

/// Starts this peer's part. It does not wait for the others: replicas run on, and the API says what is missing.
pub async fn start(
    config: &DaemonConfig,
    node: NodeId,
    peers: &[StaticPeer],
    timings: CopiedTimings,
    security: Security,
    storage: Storage,
    clock: Arc<SystemClock>,
) -> anyhow::Result<Plane> {
    let own = peers.iter().find(|peer| peer.id == node.0);
    let own = own.context("`peers` does not name this node")?;
    let clock: Arc<dyn Clock> = clock;
    let http = PeerHttp::new(Arc::new(TlsDialer::new(security.tls.clone())));
    let addrs: std::collections::BTreeMap<u64, SocketAddr> =
        peers.iter().map(|peer| (peer.id, peer.api_addr)).collect();
    let of_peer = addrs.clone();
    let network = StaticNetwork::new(http.clone(), Arc::new(move |peer| of_peer.get(&peer).copied()));
    let opened = open(config, node, &addrs, timings, &network, &clock, &storage).await?;
    let cancel = CancellationToken::new();
    let OpenedCopied {
        runtime: opened,
        log,
        task,
    } = opened;
    let secrets = Arc::new(SecretBox::from_cluster_key(&security.key));
    let mut options = with_sources(config, opened.options, &secrets);
    options.storage = storage;
    let runtime = runtime::spawn_with(cancel.clone(), opened.state, Arc::clone(&clock), options);
    let desk = open_desk(&config.data_dir, &runtime.view(), &log).await?;
    let cluster = Arc::new(StaticCluster {
        node,
        peers: addrs,
        log: log.clone(),
        view: runtime.view(),
        desk: desk.clone(),
    });
    let info = NodeInfo {
        os: own.os.as_str().into(),
        ..node_info(config, NodeRole::Peer)
    };
    let end = CancellationToken::new();
    let parts = Parts {
        refused: RefusedLog::new(Some(&config.data_dir), Arc::clone(&clock)),
        node,
        runtime,
        cancel,
        clock,
        log,
        desk,
        network,
        cluster,
        secrets,
        timings,
        sessions: end.child_token(),
        end,
    };
    let tasks = TaskTracker::new();
    tasks.spawn(task.run(parts.end.clone()));
    Ok(parts.plane(&tasks, info, http, &security))
}

async fn open(
    config: &DaemonConfig,
    node: NodeId,
    addrs: &std::collections::BTreeMap<u64, SocketAddr>,
    timings: CopiedTimings,
    network: &StaticNetwork,
    clock: &Arc<dyn Clock>,
    storage: &Storage,
) -> anyhow::Result<OpenedCopied> {
    let dir = config.data_dir.join(STATIC_DIR);
    let options = CopiedOptions {
        node: node.0,
        peers: addrs.keys().copied().collect(),
        dir: dir.join("log"),
        lost_file: dir.join("conflicted.json"),
        store: StoreOptions::default(),
        timings,
        network: Arc::new(network.clone()),
        clock: Arc::clone(clock),
        storage: storage.clone(),
    };
    let data_dir = config.data_dir.clone();
    let opened = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        Ok::<_, anyhow::Error>(runtime::open_copied(&data_dir, options)?)
    });
    let data_dir = config.data_dir.display();
    opened
        .await?
        .with_context(|| format!("the state in {data_dir} cannot be opened"))
}

async fn open_desk(data_dir: &Path, view: &RuntimeView, log: &CopiedLog) -> anyhow::Result<ScaleDesk> {
    let path = data_dir.join(STATIC_DIR).join("assignments.json");
    let (storage, view, log) = (view.storage().clone(), view.clone(), log.clone());
    let options = DeskOptions {
        path: path.clone(),
        known_spec: Arc::new(move |key| known_spec(&view, key)),
        promised: Arc::new(move || log.promised()),
        storage,
    };
    let opened = tokio::task::spawn_blocking(move || ScaleDesk::open(options));
    opened.await?.with_context(|| {
        format!(
            "what was asked of this node by hand cannot be read from {}; move the file away, and ask for it again",
            path.display()
        )
    })
}

/// What this node's copy of the state says that a service is.
fn known_spec(view: &RuntimeView, key: &ServiceKey) -> Option<(u32, Arc<ServiceSpec>)> {
    let state = view.state();
    let service = state.service_named(&key.deployment, &key.service)?;
    Some((service.target.0, Arc::clone(service.spec()?)))
}

/// A peer that can keep nothing lets another one lead, and does not lead again before it is started anew.
async fn leave_when_unfit(log: CopiedLog, storage: Storage, end: CancellationToken) {
    let mut changes = storage.changes();
    let is_gone = tokio::select! {
        () = end.cancelled() => false,
        // Where nobody watches the directory any more, the daemon ends.
        gone = changes.wait_for(|is_gone| *is_gone) => gone.is_ok(),
    };
    if is_gone {
        log.leave().await;
    }
}

/// What the plane is put together from.
struct Parts {
    node: NodeId,
    runtime: RuntimeHandle,
    cancel: CancellationToken,
    clock: Arc<dyn Clock>,
    log: CopiedLog,
    desk: ScaleDesk,
    network: StaticNetwork,
    cluster: Arc<StaticCluster>,
    secrets: Arc<SecretBox>,
    timings: CopiedTimings,
    refused: RefusedLog,
    end: CancellationToken,
    /// Ends the sessions of nodes before that.
    sessions: CancellationToken,
}

impl Parts {
    fn plane(self, tasks: &TaskTracker, info: NodeInfo, http: PeerHttp, security: &Security) -> Plane {
        let (input, view) = (self.runtime.input(), self.runtime.view());
        let leases = self.leases();
        let gateway = self.gateway(leases.clone());
        let heartbeat = Duration::from_millis(self.timings.heartbeat_ms);
        let dispatcher = self.dispatcher(heartbeat);
        let directory = self.directory(security);
        let work = OwnWork::new(OwnWorkOptions {
            node: self.node,
            view: view.clone(),
            desk: self.desk,
            in_line: self.log.in_line(),
            put_right_after: heartbeat,
        });
        let event_log = self.runtime.event_log();
        let end = self.end.clone();
        tasks.spawn(leave_when_unfit(
            self.log.clone(),
            view.storage().clone(),
            end.clone(),
        ));
        tasks.spawn(leases.run(end.clone()));
        tasks.spawn(dispatcher.run(end.clone()));
        let found = raft::found(input.clone(), view.clone(), ClusterIdCell::default(), end.clone());
        tasks.spawn(found);
        tasks.spawn(tell_conflicts(
            self.log.clone(),
            self.network,
            view.clone(),
            input.clone(),
            event_log.clone(),
            end.clone(),
        ));
        tasks.close();
        let shared: Arc<dyn Cluster> = self.cluster;
        let session = own_session::with_members(self.node, info, Arc::clone(&shared), &security.tls);
        let routes = static_routes(StaticRoutes {
            log: self.log,
            input: input.clone(),
            event_log,
        });
        let tasks = tasks.clone();
        Plane {
            node: self.node,
            input,
            view,
            clock: self.clock,
            runtime: self.runtime,
            cancel: self.cancel,
            cluster: shared,
            door: http.clone(),
            worker_tokens: None,
            renew_expired_secs: 0,
            peers: http,
            session,
            orders: Arc::new(OwnCopy { work, directory }),
            secrets: self.secrets,
            beside: Beside {
                nodes: gateway::routes(gateway),
                members: routes,
                ..Beside::default()
            },
            sessions: self.sessions,
            refused: self.refused,
            rest: Box::pin(async move {
                end.cancel();
                tasks.wait().await;
            }),
        }
    }

    /// What this node's agent is told of services.
    fn directory(&self, security: &Security) -> DirectoryFeed {
        let tickets = Some(TicketIssuer::new(&security.key));
        DirectoryFeed::start(self.node, self.runtime.view(), Arc::clone(&self.clock), tickets)
    }

    /// Tells the peers of an older version what they are to run, while this one leads.
    fn dispatcher(&self, every: Duration) -> Dispatcher {
        let nodes = self.cluster.peers.keys().map(|peer| NodeId(*peer));
        Dispatcher::new(DispatcherOptions {
            nodes: nodes.filter(|node| *node != self.node).collect(),
            target: Arc::new(self.network.clone()),
            view: self.runtime.view(),
            every,
        })
    }

    /// Where the peers' agents report. What they are to run each reads off its own copy of the state.
    fn gateway(&self, leases: Leases) -> NodeGateway {
        let addrs = self.cluster.peers.clone();
        NodeGateway::new(GatewayOptions {
            view: self.runtime.view(),
            input: self.runtime.input(),
            clock: Arc::clone(&self.clock),
            leases,
            secrets: Arc::clone(&self.secrets),
            session_address: Arc::new(move |node| addrs.get(&node.0).map(ToString::to_string)),
            workers: None,
            server_ids: Arc::new(BTreeSet::new),
            members: Arc::new(BTreeSet::new),
            carries_assignments: false,
            tickets: None,
            leader_door: None,
            tunnels: Tunnels::default(),
            reach: None,
            move_after_ms: MOVE_AFTER_MS,
            end: self.sessions.clone(),
        })
    }

    /// A peer is given up one threshold after it was first asked in vain.
    fn leases(&self) -> Leases {
        let secs = u32::try_from(self.timings.threshold_ms / 1_000).unwrap_or(u32::MAX);
        let secs = secs.max(1);
        Leases::new(LeaseOptions {
            own: Some(self.node),
            config: AdaptiveTtlConfig {
                min_ttl_secs: secs,
                max_ttl_secs: secs,
                grace_secs: secs,
                failover_ttl_secs: secs,
                ..AdaptiveTtlConfig::default()
            },
            clock: Arc::clone(&self.clock),
            view: self.runtime.view(),
            input: self.runtime.input(),
            event_log: self.runtime.event_log(),
            contact: Some(Arc::new(Contact(self.log.clone()))),
        })
    }
}

/// What the heartbeats know of the peers.
struct Contact(CopiedLog);

impl PeerContact for Contact {
    fn silent_since(&self, node: NodeId) -> Option<u64> {
        self.0.silent_since(node.0)
    }
}
