//! A worker: an agent with a session to the servers of its cluster, and nothing of the control plane.
//!
//! Called by `dhow daemon` and `dhow worker`. It joins once with a token and is the same node ever after. While no
//! server answers, what runs goes on. It ends on a signal, when it was drained for good, or when the cluster says that
//! it is none of its nodes; in the last two cases nothing is left running here.

mod address;
mod dial_back;
mod identity_dir;
mod joining;
mod reachability;
mod refused;
mod removable;
mod renewal;
mod ways;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dhow_agent::session::grpc::{Backoff, Errand, FixedRoutes, GrpcOptions, GrpcSession, SessionStanding};
use dhow_agent::{Agent, AgentHandle, AgentOptions};
use dhow_core::state::{NodeInfo, NodeRole};
use dhow_driver::volume::Volumes;
use dhow_server::api::{self, ApiTls, Tunneled, WorkerApi};
use dhow_server::clock::{Clock, SystemClock};
use dhow_server::net::keys::WorkerIdentity;
use dhow_server::net::refused_log::RefusedLog;
use dhow_server::plane::storage::Storage;
use dhow_wire::{ClusterMode, DaemonConfig, MeshAddr, MeshSetting};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::data_dir::DataDir;
use super::door::LocalDoor;
use super::host::HostParts;
use super::mesh_listener;
use super::node_info::node_info;
use super::proxy_identity::WorkerProxyIdentity;
use super::systemd;
use dial_back::Dialling;
use identity_dir::IdentityDir;
use joining::TokenFile;
use reachability::Reachability;
use removable::RemovableSession;
use renewal::Renewal;

pub use refused::Refused;

/// How long an orderly end may take before what hangs is cut off.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// How a worker ended.
enum Ended {
    /// It was asked to.
    Cancelled,
    /// Its last replica has gone, and it was to end then.
    Drained,
    /// The cluster does not know it any more.
    Removed,
}

/// Runs the worker until it ends. An error with [`Refused`] in it is the cluster's no.
pub async fn run(config: &DaemonConfig, cancel: CancellationToken) -> anyhow::Result<()> {
    let ClusterMode::WorkerTier {
        servers, token_file, ..
    } = &config.cluster
    else {
        anyhow::bail!("this is no worker's configuration; this is a bug in Dhow");
    };
    let data_dir = DataDir::open(&config.data_dir, Some(&config.socket))?;
    let storage = Storage::default();
    data_dir.watch(storage.clone(), cancel.clone());
    let dir = IdentityDir::open(config.worker_identity_dir())?;
    let routes = ways::routes(servers);
    let mut info = node_info(config, NodeRole::Worker);
    let mut mesh = config.mesh_addr();
    if let Some(configured) = config.api_addr.addr() {
        let api_addr = address::reachable(configured, &routes).await;
        info.api_addr = Some(api_addr.to_string().into());
        let reached = address::reached(api_addr, &routes).await;
        mesh = MeshAddr::of(
            config.network.mesh_addr.and_then(MeshSetting::addr),
            Some(reached),
        );
    }
    info.mesh_addr = mesh.map(|mesh| mesh.told.to_string().into());
    if config.network.mesh_addr == Some(MeshSetting::Reverse) {
        info = reachability::reversed(info);
        // Nobody dials it: where it listens is of no importance, if it has nowhere else.
        mesh = mesh.or_else(|| MeshAddr::of(None, Some(([127, 0, 0, 1], 3669).into())));
    }
    loop {
        let known = dir.read()?;
        let identity = match known {
            Some(identity) => identity,
            None => {
                let file = TokenFile::read(token_file.as_deref())?;
                tracing::info!(servers = servers.join(", "), "joining the cluster");
                // A cluster that is away must not hold up the start of its machine.
                systemd::ready("joining the cluster");
                tokio::select! {
                    joined = joining::join(&file, &routes, &info, &dir) => joined?,
                    () = cancel.cancelled() => return Ok(()),
                }
            }
        };
        let worker = Worker {
            config,
            routes: routes.clone(),
            info: info.clone(),
            mesh,
            identity: Arc::new(identity),
            dir: dir.clone(),
            token_file: token_file.as_deref(),
            storage: storage.clone(),
            data_dir: &data_dir,
        };
        match worker.serve(&cancel).await? {
            Ended::Cancelled => return Ok(()),
            Ended::Drained => {
                tracing::info!("the last replica has gone; this worker was drained and ends");
                return Ok(());
            }
            Ended::Removed => worker.after_removal()?,
        }
    }
}

/// A worker that is one.
struct Worker<'a> {
    config: &'a DaemonConfig,
    routes: FixedRoutes,
    info: NodeInfo,
    mesh: Option<MeshAddr>,
    identity: Arc<WorkerIdentity>,
    dir: IdentityDir,
    token_file: Option<&'a str>,
    storage: Storage,
    data_dir: &'a DataDir,
}

impl Worker<'_> {
    /// From the start of its agent to its end.
    async fn serve(&self, cancel: &CancellationToken) -> anyhow::Result<Ended> {
        let node = self.identity.node();
        // What is configured is not doubted.
        let found_out = self.config.network.mesh_addr.is_none();
        let reachability = found_out.then(|| Reachability::open(&self.config.data_dir, self.info.clone()));
        let info = reachability
            .as_ref()
            .map_or_else(|| self.info.clone(), Reachability::said);
        let (dialling, tunnels) = Dialling::new(Arc::clone(&self.identity));
        let session = Arc::new(self.session(info, dialling));
        let removable = Arc::new(RemovableSession::new(Arc::clone(&session)));
        let host = HostParts::open(self.config).await?;
        let agent = Agent::open(AgentOptions {
            node,
            mesh: self.mesh.map(mesh_listener::of),
            dir: self.config.data_dir.join("agent"),
            volumes_dir: self.config.data_dir.join("volumes"),
            files_dir: self.config.data_dir.join("files"),
            drivers: host.drivers.clone(),
            balancer: host.balancer.clone(),
            session: Arc::clone(&removable) as _,
            orders: Arc::clone(&removable) as _,
            policy: self.config.policy.clone(),
            returning: super::returning(&self.config.cluster)?,
        });
        let agent = agent.await.context("the agent cannot be started")?;
        let (end, handle) = (CancellationToken::new(), agent.handle());
        let mut agent = tokio::spawn(agent.run(end.clone()));
        let served = (session.standing(), tunnels);
        let api = self.answer(&handle, &host, served, &end).await?;
        self.first_words(&host);
        let unknown = CancellationToken::new();
        let identifying = WorkerProxyIdentity {
            identity: Arc::clone(&self.identity),
            errand: self.errand(),
            balancer: host.balancer.clone(),
            clock: Arc::new(SystemClock::new()),
        };
        let ended = tokio::select! {
            never = identifying.keep() => match never {},
            never = self.find_out(reachability, &session) => match never {},
            () = cancel.cancelled() => Ok(Ended::Cancelled),
            () = drained(session.drains(), handle.settled()) => Ok(Ended::Drained),
            () = self.removed(&session, &removable, &handle, &unknown) => Ok(Ended::Removed),
            refused = self.renewal(&unknown).run() => Err(refused.into()),
            ended = &mut agent => Err(match ended {
                Ok(Ok(())) => anyhow::anyhow!("the agent ended by itself"),
                Ok(Err(error)) => anyhow::Error::new(error),
                Err(error) => anyhow::Error::new(error),
            }),
        };
        end.cancel();
        systemd::stopping();
        if !agent.is_finished() {
            // Its task only waits for its ledger, and for what has ended to be removed.
            let _ = tokio::time::timeout(SHUTDOWN, &mut agent).await;
        }
        if tokio::time::timeout(SHUTDOWN, api).await.is_err() {
            tracing::warn!("requests were cut off: they took too long");
        }
        match &ended {
            Ok(Ended::Drained | Ended::Removed) => host.leave(self.data_dir.leads_to()).await,
            Ok(Ended::Cancelled) | Err(_) => {}
        }
        host.rest(self.data_dir.leads_to()).await;
        ended
    }

    /// What a person wants to see first: which worker this is, and where it is reached.
    fn first_words(&self, host: &HostParts) {
        let (node, cluster) = (self.identity.node(), self.identity.cluster_id());
        tracing::info!(
            version = %env!("CARGO_PKG_VERSION"),
            mode = %self.config.cluster.name(),
            %node,
            cluster,
            api = %self.info.api_addr.as_deref().unwrap_or("off"),
            socket = %self.config.socket.display(),
            data_dir = %self.config.data_dir.display(),
            mesh = self.info.mesh_addr.as_deref(),
            containers = %host.container_runtime(),
            "this worker serves"
        );
        systemd::ready(&format!("worker {node} of cluster {cluster}"));
    }

    /// Finds out how this worker is reached, where nobody has said it.
    async fn find_out(&self, reachability: Option<Reachability>, session: &Arc<GrpcSession>) -> Infallible {
        match reachability {
            Some(reachability) => reachability.watch(Arc::clone(session), self.errand()).await,
            None => std::future::pending().await,
        }
    }

    fn session(&self, info: NodeInfo, dialling: Dialling) -> GrpcSession {
        let connector = Arc::new(ways::Known(Arc::clone(&self.identity)));
        let routes = Arc::new(self.routes.clone());
        let mut options = GrpcOptions::new(self.identity.node(), info, routes, connector);
        options.dial_back = Some(Arc::new(dialling));
        options.backoff = Backoff::of_workers();
        options.keep_alive = None;
        options.cluster_id = Some(self.identity.cluster_id().to_owned());
        GrpcSession::start(options)
    }

    /// Asks servers as this worker, without a session.
    fn errand(&self) -> Errand {
        Errand {
            routes: Arc::new(self.routes.clone()),
            connector: Arc::new(ways::Known(Arc::clone(&self.identity))),
            backoff: Backoff::of_workers(),
        }
    }

    fn renewal(&self, unknown: &CancellationToken) -> Renewal {
        Renewal {
            identity: Arc::clone(&self.identity),
            dir: self.dir.clone(),
            errand: self.errand(),
            clock: Arc::new(SystemClock::new()),
            unknown: unknown.clone(),
        }
    }

    /// Opens the door to its replicas for the servers, and its own socket.
    async fn answer(
        &self,
        agent: &AgentHandle,
        host: &HostParts,
        (standing, tunnels): (watch::Receiver<SessionStanding>, mpsc::Receiver<Tunneled>),
        end: &CancellationToken,
    ) -> anyhow::Result<JoinHandle<()>> {
        let addr = self.info.api_addr.as_deref().and_then(|addr| addr.parse().ok());
        let tls = ApiTls::of_worker(&self.identity).context("TLS cannot be set up")?;
        let listeners = api::Listeners {
            socket: Some(self.config.socket.clone()),
            socket_group: api::socket_group(),
            tcp: addr.into_iter().collect(),
            tls: Some(tls),
        };
        let bound = api::bind(&listeners).await?.with_tunnels(tunnels);
        let node = self.identity.node();
        let addresses: Vec<_> = self
            .routes
            .0
            .iter()
            .map(|server| server.address.as_str())
            .collect();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let worker = WorkerApi {
            node,
            door: Arc::new(LocalDoor::new(
                node,
                agent.clone(),
                host.images.clone(),
                Volumes::new(self.config.data_dir.join("volumes")),
            )),
            standing: Arc::new(move || match &*standing.borrow() {
                SessionStanding::Open { .. } => None,
                other @ (SessionStanding::Seeking { .. } | SessionStanding::Unknown) => {
                    Some(other.to_string())
                }
            }),
            storage: self.storage.clone(),
            servers: addresses.join(", ").into(),
            data_dir: Some(host.data_dir.clone()),
            refused: RefusedLog::new(Some(&host.data_dir), Arc::clone(&clock)),
        };
        Ok(tokio::spawn(api::serve_worker(worker, clock, bound, end.clone())))
    }

    /// Resolves when the cluster has said that it does not know this node, and nothing of it is left here, or another
    /// token is there to join with.
    async fn removed(
        &self,
        session: &GrpcSession,
        removable: &RemovableSession,
        agent: &AgentHandle,
        unknown: &CancellationToken,
    ) {
        let mut standing = session.standing();
        tokio::select! {
            // The session lives as long as this is asked.
            _ = standing.wait_for(|standing| matches!(standing, SessionStanding::Unknown)) => {}
            () = unknown.cancelled() => {}
        }
        if self.other_token().is_some() {
            return;
        }
        tracing::error!(
            node = %self.identity.node(),
            "the cluster has removed this worker: its replicas are stopped, then it ends"
        );
        removable.remove();
        let _ = agent.settled().wait_for(|settled| *settled).await;
    }

    /// A token that this worker has not joined with: with the one it has, whoever removed it would see it again at once.
    fn other_token(&self) -> Option<TokenFile> {
        let file = TokenFile::read(self.token_file).ok()?;
        let known = self.dir.token_id().ok()?;
        (known.as_deref() != Some(file.id().as_str())).then_some(file)
    }

    fn after_removal(&self) -> anyhow::Result<()> {
        let node = self.identity.node();
        if self.other_token().is_none() {
            return Err(Refused(format!(
                "the cluster does not know node {node}: it was removed, and its certificate with it. To join again as a \
                 new node make a token with `dhow token create-worker`, put it into the token file, and start again"
            ))
            .into());
        }
        tracing::warn!(%node, "the cluster does not know this worker any more; it joins again with its new token");
        self.dir.forget()
    }
}

/// Resolves when the worker is to end, and nothing is left to do.
async fn drained(mut drains: watch::Receiver<bool>, mut settled: watch::Receiver<bool>) {
    loop {
        if *drains.borrow_and_update() && *settled.borrow_and_update() {
            return;
        }
        let news = tokio::select! {
            news = drains.changed() => news,
            news = settled.changed() => news,
        };
        if news.is_err() {
            // The session or the agent has ended; the daemon waits for both elsewhere.
            std::future::pending::<()>().await;
        }
    }
}
