//! What makes a raft server the server of a worker tier: the workers' CA, their tokens, and a port of their own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dhow_core::directory::REVERSE;
use dhow_core::ids::NodeId;
use dhow_core::state::NodeRole;
use dhow_server::api::WorkerTokenKey;
use dhow_server::clock::Clock;
use dhow_server::gateway::{
    CertificateError, InternalTokens, NodeGateway, ReachWorker, WorkerCertificates, WorkerPort, WorkerTier,
};
use dhow_server::net::keys::WorkerCas;
use dhow_server::net::peer_http::{Dialer, OtherServers, PeerHttp, TlsDialer, WorkerDialer, WorkerWays};
use dhow_server::net::refused_log::RefusedLog;
use dhow_server::net::tunnels::Tunnels;
use dhow_server::plane::runtime::{RuntimeHandle, RuntimeView};
use dhow_wire::{ByteStream, ClusterMode, DaemonConfig};
use futures_util::future::BoxFuture;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::node_info::WORKER_ADDR_LABEL;
use super::security::Security;

/// The CAs that are believed, for people who look: none of it is secret, and nothing reads it.
const CA_FILE: &str = "worker-ca.pem";

/// How often it is looked whether a replaced CA is still believed.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// What the daemon of a server needs beside raft to take workers: their port, their CAs, the key of their tokens, and
/// the way to their own doors.
pub struct Tier {
    port: WorkerPort,
    cas: Arc<WorkerCas>,
    ca_dir: PathBuf,
    clock: Arc<dyn Clock>,
    pub door: PeerHttp,
    /// Connections that workers dial back.
    pub tunnels: Tunnels,
    pub reach: Arc<ReachWorker>,
    pub gate: WorkerTier,
    pub token_key: WorkerTokenKey,
}

/// Opens the workers' part; none where this cluster has none.
pub async fn open(
    config: &DaemonConfig,
    security: &Security,
    clock: &Arc<dyn Clock>,
    runtime: &RuntimeHandle,
    refused: &RefusedLog,
    others: Arc<OtherServers>,
) -> anyhow::Result<Option<Tier>> {
    let ClusterMode::WorkerTier { worker_grpc_addr, .. } = &config.cluster else {
        return Ok(None);
    };
    let view = runtime.view();
    let ca = Arc::clone(security.tls.ca());
    let known = view.state().worker_cas.clone();
    let older = known.older(clock.wall_unix_ms().div_euclid(1_000));
    let cas = WorkerCas::new(&security.key, ca, known.newest(), &older);
    let cas = Arc::new(cas.context("the workers' CA cannot be made")?);
    let ca_dir = config.worker_ca_dir();
    write_cas(&ca_dir, &cas)?;
    let port = WorkerPort::bind(
        *worker_grpc_addr,
        &security.tls,
        Arc::clone(&cas),
        Arc::clone(clock),
        view.clone(),
        refused.clone(),
    );
    let token_key = security.key.worker_token_key();
    let certificates = Issuer {
        cas: Arc::clone(&cas),
        clock: Arc::clone(clock),
        view: view.clone(),
    };
    let members = TlsDialer::new(security.tls.clone());
    let workers = WorkerDialer::new(security.tls.clone(), Arc::clone(&cas));
    let (tunnels, reach) = (Tunnels::default(), reach(workers.clone()));
    let dialer = NodeDialer {
        members: members.clone(),
        workers: WorkerWays::new(
            workers,
            members,
            tunnels.clone(),
            is_reversed(view.clone()),
            others,
        ),
        view: view.clone(),
    };
    Ok(Some(Tier {
        port: port.await?,
        cas,
        ca_dir,
        clock: Arc::clone(clock),
        door: PeerHttp::new(Arc::new(dialer)),
        tunnels,
        reach,
        gate: WorkerTier {
            token_key: token_key.verifying_key(),
            certificates: Arc::new(certificates),
            internal_tokens: InternalTokens::new(*security.key.internal_token_key()),
            renew_expired_secs: config.renew_expired_secs(),
            event_log: runtime.event_log(),
        },
        token_key,
    }))
}

impl Tier {
    /// Serves the workers until `end`.
    pub async fn serve(self, gateway: NodeGateway, view: RuntimeView, end: CancellationToken) {
        let following = follow(&self.cas, &self.ca_dir, &self.clock, &view);
        let serving = self.port.serve(gateway.at(worker_address(view.clone())), end);
        let serving = async move {
            match OwnThreads::start() {
                Ok(threads) => threads.spawn(serving).await,
                Err(error) => {
                    tracing::warn!(%error, "the workers have no threads of their own, and share those of the server");
                    serving.await;
                }
            }
        };
        tokio::select! {
            () = serving => {}
            () = following => {}
        }
    }
}

/// Believes the CAs that the state says, as soon as it does; never ends.
async fn follow(cas: &Arc<WorkerCas>, dir: &Path, clock: &Arc<dyn Clock>, view: &RuntimeView) {
    let mut states = view.states();
    loop {
        let known = states.borrow_and_update().worker_cas.clone();
        let older = known.older(clock.wall_unix_ms().div_euclid(1_000));
        match cas.trust(known.newest(), &older) {
            Ok(true) => {
                let (dir, cas) = (dir.to_owned(), Arc::clone(cas));
                tracing::info!(newest = known.newest(), ?older, "the workers' CA has changed");
                let written = tokio::task::spawn_blocking(move || write_cas(&dir, &cas)).await;
                if let Ok(Err(error)) = written {
                    tracing::warn!("{error:#}");
                }
            }
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the new CA of the workers cannot be made"),
        }
        // A busy cluster changes its state many times a second, and this one part of it hardly ever.
        let look = tokio::time::sleep(LOOK_EVERY);
        let has_ended = tokio::select! {
            () = look => false,
            news = states.wait_for(|state| state.worker_cas != known) => news.is_err(),
        };
        if has_ended {
            // The state has no owner any more: nothing can change.
            return std::future::pending().await;
        }
    }
}

/// The threads of the workers' connections. Ten thousand of them that wake at one moment, because all have an
/// assignment or have lost their leader, are half a second of work: on the threads of the log, its heartbeats would wait
/// for all of that, and the server would lose its place as leader.
struct OwnThreads(Option<Runtime>);

impl OwnThreads {
    fn start() -> std::io::Result<Self> {
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        threads.enable_all().thread_name("workers");
        Ok(Self(Some(threads.build()?)))
    }

    async fn spawn(&self, serving: impl Future<Output = ()> + Send + 'static) {
        if let Some(threads) = &self.0 {
            // One that panicked has ended as well.
            let _ = threads.spawn(serving).await;
        }
    }
}

impl Drop for OwnThreads {
    fn drop(&mut self) {
        // Waiting for threads is nothing for an async thread; what they serve has ended, or is cut off.
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

/// Blocks for the moment that a small file takes; nothing else runs yet.
fn write_cas(dir: &Path, cas: &WorkerCas) -> anyhow::Result<()> {
    let path = dir.join(CA_FILE);
    let written = std::fs::create_dir_all(dir)
        .and_then(|()| dhow_disk::replace(&path, cas.pem().as_bytes(), dhow_disk::Outlives::PowerCut));
    written.with_context(|| format!("the workers' CA cannot be written to {}", path.display()))
}

/// How long a worker may take to answer that asks whether it can be dialled.
const REACH_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Dials a worker's door; whoever else answers there counts as nobody.
fn reach(workers: WorkerDialer) -> Arc<ReachWorker> {
    Arc::new(move |node, addr| {
        let dialling = workers.dial(node, addr);
        Box::pin(async move {
            match tokio::time::timeout(REACH_TIMEOUT, dialling).await {
                Ok(Ok(_)) => Ok(()),
                // Nothing of what answers there is told: it may be somebody else's.
                Ok(Err(_)) => Err(format!("it does not answer at {addr} as itself")),
                Err(_) => Err(format!("it does not answer at {addr} in time")),
            }
        })
    })
}

/// Whether a worker says that nobody can dial it.
fn is_reversed(view: RuntimeView) -> Arc<dyn Fn(NodeId) -> bool + Send + Sync> {
    Arc::new(move |node| {
        let state = view.state();
        state
            .node(node)
            .is_some_and(|node| node.info.mesh_addr.as_deref() == Some(REVERSE))
    })
}

/// Where a server takes workers: the label that its configuration or an administrator gave its node.
fn worker_address(view: RuntimeView) -> Arc<dyn Fn(NodeId) -> Option<String> + Send + Sync> {
    Arc::new(move |node| view.state().node(node)?.labels().get(WORKER_ADDR_LABEL).cloned())
}

/// Makes certificates for the workers of this very cluster.
struct Issuer {
    cas: Arc<WorkerCas>,
    clock: Arc<dyn Clock>,
    view: RuntimeView,
}

impl Issuer {
    /// Calls one of the CA's ways to make a certificate with this cluster's id and the time.
    fn made<E: std::fmt::Display>(
        &self,
        make: impl FnOnce(&str, i64) -> Result<String, E>,
    ) -> Result<String, CertificateError> {
        let state = self.view.state();
        let cluster_id = state.cluster_id.as_deref().unwrap_or_default();
        let made = make(cluster_id, self.clock.wall_unix_ms().div_euclid(1_000));
        made.map_err(|error| CertificateError(error.to_string()))
    }
}

impl WorkerCertificates for Issuer {
    fn issue(&self, csr_pem: &str, node: NodeId) -> Result<String, CertificateError> {
        self.made(|cluster_id, now| self.cas.issue(csr_pem, node, cluster_id, now))
    }

    fn issue_proxy(&self, csr_pem: &str, node: NodeId) -> Result<String, CertificateError> {
        self.made(|cluster_id, now| self.cas.issue_proxy(csr_pem, node, cluster_id, now))
    }
}

/// Calls nodes for what only they have: each kind by its own CA.
struct NodeDialer {
    members: TlsDialer,
    workers: WorkerWays,
    view: RuntimeView,
}

impl Dialer for NodeDialer {
    fn dial(
        &self,
        node: NodeId,
        addr: std::net::SocketAddr,
    ) -> BoxFuture<'static, std::io::Result<Box<dyn ByteStream>>> {
        match self.view.state().node(node).map(|node| node.info.role) {
            Some(NodeRole::Worker) => self.workers.dial(node, addr),
            Some(NodeRole::Server | NodeRole::Peer) | None => self.members.dial(node, addr),
        }
    }
}
