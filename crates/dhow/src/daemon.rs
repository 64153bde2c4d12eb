//! The daemon: control plane, agent and API of one node, joined in one process.
//!
//! Called by `dhow daemon` and by `dhow up`. It owns the order of starting and ending: state before agent, agent
//! before API, and the other way round at the end. What runs on the host goes on without it.

pub mod data_dir;
mod directory_feed;
mod door;
mod door_exec;
mod door_images;
mod door_volumes;
mod host;
pub mod kept_log;
pub mod logging;
mod mesh_listener;
mod node_info;
mod own_session;
mod plane;
mod proxy_identity;
pub mod raft;
pub mod reload;
mod security;
mod single;
pub mod static_mode;
pub mod systemd;
#[cfg(test)]
mod tests;
mod tier;
pub mod worker;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dhow_agent::{Agent, AgentHandle, AgentOptions, Returning};
use dhow_core::directory::REVERSE;
use dhow_core::ids::NodeId;
use dhow_core::spec::policy::{FilePolicy, WordsOnly};
use dhow_driver::shim::identity::boot_id;
use dhow_driver::volume::Volumes;
use dhow_server::api::{self, Api, Beside};
use dhow_server::clock::{Clock, SystemClock};
use dhow_server::net::keys::keep_renewed;
use dhow_server::net::node_door::ClusterDoor;
use dhow_server::plane::acme::{AcmeClient, CertificateOrders};
use dhow_server::plane::cluster::Cluster;
use dhow_server::plane::feature_level::raise_feature_level;
use dhow_server::plane::notify::{Notifier, NotifyDesk};
use dhow_server::plane::runtime::{RuntimeHandle, RuntimeView, drain};
use dhow_server::plane::services::{ClusterIdentity, ServiceManager};
use dhow_server::plane::storage::Storage;
use dhow_server::plane::{cron, scaler};
use dhow_wire::{ClusterMode, DaemonConfig, WorkerTierRole};
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use data_dir::DataDir;
use door::LocalDoor;
use host::HostParts;
use plane::Plane;
use proxy_identity::ProxyIdentity;
use security::Security;

/// How long an orderly end may take before what hangs is cut off.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// What happens where the API's TCP address is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpApi {
    Required,
    /// The Unix socket alone will do.
    Optional,
}

/// A daemon that serves.
pub struct Daemon {
    cancel: CancellationToken,
    clock: Arc<SystemClock>,
    runtime: RuntimeHandle,
    runtime_cancel: CancellationToken,
    cluster: Arc<dyn Cluster>,
    rest: BoxFuture<'static, ()>,
    agent_cancel: CancellationToken,
    agent: JoinHandle<Result<(), dhow_agent::AgentError>>,
    sessions: CancellationToken,
    api_cancel: CancellationToken,
    api: JoinHandle<()>,
    host: HostParts,
    data_dir: DataDir,
}

impl Daemon {
    /// Starts everything; it serves when this returns. `cancel` ends it.
    pub async fn start(
        config: &DaemonConfig,
        tcp: TcpApi,
        cancel: CancellationToken,
    ) -> anyhow::Result<Self> {
        let data_dir = DataDir::open(&config.data_dir, Some(&config.socket))?;
        kept_log::refuse_another(config)?;
        let storage = Storage::default();
        data_dir.watch(storage.clone(), cancel.clone());
        let clock = Arc::new(SystemClock::new());
        let node = own_node(&config.cluster);
        let security = security::read(config, node, clock.as_ref())?;
        let bound = bind(config, tcp, security.as_ref()).await?;
        if let Some(security) = &security {
            let cert = Arc::clone(security.tls.cert());
            tokio::spawn(keep_renewed(cert, Arc::clone(&clock) as _, cancel.clone()));
        }
        let proved = security.as_ref().map(|security| security.tls.clone());
        let plane = start_plane(config, node, security, storage, &clock).await?;
        let host = HostParts::open(config).await?;
        if let Some(tls) = proved {
            let identifying = ProxyIdentity {
                tls,
                balancer: Arc::clone(&host.balancer),
                clock: Arc::clone(&clock) as _,
            };
            tokio::spawn(identifying.keep(cancel.clone()));
        }
        let agent = open_agent(config, &plane, &host).await?;
        let (agent_cancel, handle) = (CancellationToken::new(), agent.handle());
        let agent = tokio::spawn(agent.run(agent_cancel.clone()));
        let api_cancel = CancellationToken::new();
        let authority = open_authority(config).await?;
        let tcp_addrs = bound.tcp_addrs();
        let serving = Serving {
            bound,
            volumes: Volumes::new(config.data_dir.join("volumes")),
            policy: file_policy(config),
            authority,
        };
        let api = serve(&plane, handle, &host, serving, &api_cancel);
        tokio::spawn(raise_feature_level(
            Arc::clone(&plane.cluster),
            plane.peers.clone(),
            plane.input.clone(),
            plane.view.clone(),
            cancel.clone(),
        ));
        first_words(config, node, &tcp_addrs, &host);
        Ok(Self {
            cancel,
            clock,
            runtime: plane.runtime,
            runtime_cancel: plane.cancel,
            cluster: plane.cluster,
            rest: plane.rest,
            agent_cancel,
            agent,
            sessions: plane.sessions,
            api_cancel,
            api,
            host,
            data_dir,
        })
    }

    /// Waits until it is to end, or fails; then ends everything in order.
    pub async fn finish(mut self) -> anyhow::Result<()> {
        let failure = tokio::select! {
            () = self.cancel.cancelled() => None,
            ended = self.runtime.ended() => Some(match ended {
                Ok(()) => anyhow::anyhow!("the control plane ended by itself"),
                Err(failure) => anyhow::Error::new(SharedError(failure)),
            }),
            ended = &mut self.agent => Some(match ended {
                Ok(Ok(())) => anyhow::anyhow!("the agent ended by itself"),
                Ok(Err(error)) => anyhow::Error::new(error),
                Err(error) => anyhow::Error::new(error),
            }),
        };
        self.cancel.cancel();
        systemd::stopping();
        // First, while this server still answers: callers are passed on to the next leader.
        if tokio::time::timeout(SHUTDOWN, self.cluster.hand_over())
            .await
            .is_err()
        {
            tracing::warn!("no other server has taken the lead; the cluster finds one by itself");
        }
        // The sessions of nodes, this one's own too, do not end by themselves; the nodes go to other servers.
        self.sessions.cancel();
        self.api_cancel.cancel();
        let api_ended = tokio::time::timeout(SHUTDOWN, &mut self.api).await;
        if api_ended.is_err() {
            tracing::warn!("requests were cut off: they took too long");
            self.api.abort();
        }
        self.agent_cancel.cancel();
        if !self.agent.is_finished() {
            // Its task only waits for its ledger, and for what has ended to be removed.
            let _ = tokio::time::timeout(SHUTDOWN, &mut self.agent).await;
        }
        self.host.rest(self.data_dir.leads_to()).await;
        self.runtime_cancel.cancel();
        let deadline_ms = u64::try_from(SHUTDOWN.as_millis()).unwrap_or(u64::MAX);
        let drained = drain(
            self.runtime.into_join_handles(),
            &*self.clock as &dyn Clock,
            deadline_ms,
        )
        .await;
        if !drained.is_clean() {
            tracing::warn!(?drained, "the control plane did not end cleanly");
        }
        if tokio::time::timeout(SHUTDOWN, self.rest).await.is_err() {
            tracing::warn!("the log did not end in time");
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

/// What a person wants to see first: which daemon this is, and where it is reached.
fn first_words(config: &DaemonConfig, node: NodeId, tcp_addrs: &[SocketAddr], host: &HostParts) {
    let addrs: Vec<String> = tcp_addrs.iter().map(SocketAddr::to_string).collect();
    let api = match addrs.is_empty() {
        true => "off".to_owned(),
        false => addrs.join(", "),
    };
    tracing::info!(
        version = %env!("CARGO_PKG_VERSION"),
        mode = %config.cluster.name(),
        %node,
        %api,
        socket = %config.socket.display(),
        data_dir = %config.data_dir.display(),
        mesh = config.mesh_addr().map(|mesh| mesh.told.to_string()),
        containers = %host.container_runtime(),
        "the daemon serves"
    );
    systemd::ready(&format!("{}, node {node}, API at {api}", config.cluster.name()));
}

/// Starts the control plane of the mode that the configuration names.
async fn start_plane(
    config: &DaemonConfig,
    node: NodeId,
    security: Option<Security>,
    storage: Storage,
    clock: &Arc<SystemClock>,
) -> anyhow::Result<Plane> {
    let clock = Arc::clone(clock);
    match &config.cluster {
        ClusterMode::SingleNode {} => single::start(config, storage, clock).await,
        ClusterMode::Raft { peers, .. }
        | ClusterMode::WorkerTier {
            role: WorkerTierRole::Server,
            peers,
            ..
        } => raft::start(config, node, peers, needed(security)?, storage, clock).await,
        ClusterMode::WorkerTier {
            role: WorkerTierRole::Worker,
            ..
        } => anyhow::bail!("a worker has no control plane; this is a bug in Dhow"),
        ClusterMode::Static {
            peers,
            heartbeat_interval,
            failure_threshold,
            ..
        } => {
            let timings = static_mode::timings(*heartbeat_interval, *failure_threshold);
            let security = needed(security)?;
            static_mode::start(config, node, peers, timings, security, storage, clock).await
        }
    }
}

/// An error that several wait for.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct SharedError<E: std::error::Error + Send + Sync + 'static>(Arc<E>);

/// Reading it has failed before where a cluster has none.
fn needed(security: Option<Security>) -> anyhow::Result<Security> {
    security.context("a cluster needs a key")
}

/// The id that the configuration gives this node; 1 where it gives none.
fn own_node(mode: &ClusterMode) -> NodeId {
    match mode {
        ClusterMode::SingleNode {} => NodeId(1),
        ClusterMode::Raft { node_id, .. } | ClusterMode::Static { node_id, .. } => NodeId(*node_id),
        ClusterMode::WorkerTier { node_id, .. } => NodeId(node_id.unwrap_or(1)),
    }
}

async fn bind(config: &DaemonConfig, tcp: TcpApi, security: Option<&Security>) -> anyhow::Result<api::Bound> {
    let tls = security.map(|security| api::ApiTls::new(&security.tls, &[]));
    let tls = tls.transpose().context("TLS cannot be set up")?;
    let listeners = |tcp: Vec<std::net::SocketAddr>| api::Listeners {
        socket: Some(config.socket.clone()),
        socket_group: api::socket_group(),
        tcp,
        tls: tls.clone(),
    };
    let wanted: Vec<_> = config.api_addr.addr().into_iter().collect();
    match (api::bind(&listeners(wanted)).await, tcp) {
        (Ok(bound), _) => Ok(bound),
        (Err(api::BindError::Tcp { .. }), TcpApi::Optional) => {
            tracing::debug!(addr = %config.api_addr, "taken: the API is served on its Unix socket alone");
            Ok(api::bind(&listeners(Vec::new())).await?)
        }
        (Err(error), _) => Err(error.into()),
    }
}

async fn open_agent(config: &DaemonConfig, plane: &Plane, host: &HostParts) -> anyhow::Result<Agent> {
    let agent = Agent::open(AgentOptions {
        node: plane.node,
        mesh: config.mesh_addr().map(mesh_listener::of),
        dir: config.data_dir.join("agent"),
        volumes_dir: config.data_dir.join("volumes"),
        files_dir: config.data_dir.join("files"),
        drivers: host.drivers.clone(),
        balancer: host.balancer.clone(),
        session: Arc::clone(&plane.session),
        orders: Arc::clone(&plane.orders),
        policy: config.policy.clone(),
        returning: returning(&config.cluster)?,
    });
    agent.await.context("the agent cannot be started")
}

/// What a restart of the host means for what ran here: a node of a cluster asks first.
fn returning(mode: &ClusterMode) -> anyhow::Result<Returning> {
    match mode {
        ClusterMode::SingleNode {} => Ok(Returning::Alone),
        ClusterMode::Raft { .. } | ClusterMode::Static { .. } | ClusterMode::WorkerTier { .. } => {
            let boot_id = boot_id().context("this host does not say when it was started")?;
            Ok(Returning::Confirmed { boot_id })
        }
    }
}

/// The ACME server that the configuration names.
async fn open_authority(config: &DaemonConfig) -> anyhow::Result<Option<Arc<AcmeClient>>> {
    let Some(acme) = config.acme.clone() else {
        return Ok(None);
    };
    let opened = tokio::task::spawn_blocking(move || AcmeClient::open(&acme)).await?;
    let opened = opened.context("`acme` of the configuration cannot be used")?;
    Ok(Some(Arc::new(opened)))
}

/// What the API is served with, beside the control plane.
struct Serving {
    bound: api::Bound,
    volumes: Volumes,
    policy: Arc<FilePolicy>,
    authority: Option<Arc<AcmeClient>>,
}

/// Serves the API, fires what is scheduled and orders certificates.
fn serve(
    plane: &Plane,
    agent: AgentHandle,
    host: &HostParts,
    serving: Serving,
    cancel: &CancellationToken,
) -> JoinHandle<()> {
    let Serving {
        bound,
        volumes,
        policy,
        authority,
    } = serving;
    let local = LocalDoor::new(plane.node, agent, host.images.clone(), volumes);
    let addr_of = addr_of(Arc::clone(&plane.cluster), plane.view.clone());
    let door = ClusterDoor::new(plane.node, Arc::new(local), plane.door.clone(), addr_of);
    let identity = ClusterIdentity {
        mode: plane.cluster.mode(),
        node_id: plane.node,
    };
    let (view, clock) = (plane.view.clone(), Arc::clone(&plane.clock));
    let api = Api {
        manager: ServiceManager::new(view.clone(), Arc::clone(&clock), Arc::new(door), identity),
        input: plane.input.clone(),
        event_log: plane.runtime.event_log(),
        secrets: Arc::clone(&plane.secrets),
        cluster: Arc::clone(&plane.cluster),
        peers: plane.peers.clone(),
        worker_tokens: plane.worker_tokens.clone(),
        renew_expired_secs: plane.renew_expired_secs,
        orders_certificates: authority.is_some(),
        data_dir: Some(host.data_dir.clone()),
        refused: plane.refused.clone(),
        policy,
        notify: NotifyDesk::default(),
    };
    let notices = Notifier {
        view: view.clone(),
        input: plane.input.clone(),
        secrets: Arc::clone(&plane.secrets),
        clock: Arc::clone(&clock),
        desk: api.notify.clone(),
    };
    let notices = notices.run(cancel.clone());
    let orders = authority.map(|authority| CertificateOrders {
        view: view.clone(),
        input: plane.input.clone(),
        secrets: Arc::clone(&plane.secrets),
        clock: Arc::clone(&clock),
        authority,
        random: rand::random::<u64>,
    });
    let orders = orders.map(|orders| orders.run(cancel.clone()));
    let counts = scaler::run(
        view.clone(),
        plane.input.clone(),
        Arc::clone(&clock),
        cancel.clone(),
    );
    let schedules = cron::run(view, plane.input.clone(), clock, cancel.clone());
    let beside = Beside {
        page: Some(dhow_server::page::routes),
        ..plane.beside.clone()
    };
    let serving = api::serve_with(api, beside, bound, cancel.clone());
    tokio::spawn(async move {
        let orders = futures_util::future::OptionFuture::from(orders);
        tokio::join!(schedules, counts, serving, orders, notices);
    })
}

/// The policy as the API asks it.
fn file_policy(config: &DaemonConfig) -> Arc<FilePolicy> {
    let runs_as_root = rustix::process::geteuid().is_root();
    Arc::new(FilePolicy {
        policy: config.policy.clone(),
        host: WordsOnly { runs_as_root },
    })
}

/// Where a node's API is: a server's as the cluster knows it, any other's as it says itself.
fn addr_of(
    cluster: Arc<dyn Cluster>,
    view: RuntimeView,
) -> Arc<dyn Fn(NodeId) -> Option<SocketAddr> + Send + Sync> {
    Arc::new(move |node| {
        let members = cluster.members();
        let member = members.iter().find(|member| member.node == node);
        let told = || {
            let state = view.state();
            let info = &state.node(node)?.info;
            let is_reverse = info.mesh_addr.as_deref() == Some(REVERSE);
            // One that dials back need not be anywhere.
            let nowhere = is_reverse.then(|| SocketAddr::from(([0, 0, 0, 0], 0)));
            info.api_addr
                .as_ref()
                .and_then(|addr| addr.parse().ok())
                .or(nowhere)
        };
        member.and_then(|member| member.api_addr).or_else(told)
    })
}
