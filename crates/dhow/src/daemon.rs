//! The daemon: control plane, agent and API of one node, joined in one process.
//!
//! Called by `dhow daemon` and by `dhow up`. It owns the order of starting and ending: state before agent, agent
//! before API, and the other way round at the end. What runs on the host goes on without it.

mod control;
mod data_dir;
mod door;
mod door_exec;
mod door_images;
mod host;
pub mod logging;
mod session;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dhow_agent::{Agent, AgentHandle, AgentOptions};
use dhow_core::ids::NodeId;
use dhow_server::api::{self, Api};
use dhow_server::clock::{Clock, SystemClock};
use dhow_server::cron;
use dhow_server::runtime::{HeartbeatIngest, RuntimeHandle, drain};
use dhow_server::secrets::SecretBox;
use dhow_server::services::{ClusterIdentity, ServiceManager};
use dhow_wire::{ClusterMode, DaemonConfig};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use control::Control;
use data_dir::DataDir;
use door::LocalDoor;
use host::Host;
use session::LocalSession;

/// How long an orderly end may take before what hangs is cut off.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// The one node of a single-node cluster.
const NODE: NodeId = NodeId(1);

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
    agent_cancel: CancellationToken,
    agent: JoinHandle<Result<(), dhow_agent::AgentError>>,
    api: JoinHandle<()>,
    host: Host,
    _data_dir: DataDir,
}

impl Daemon {
    /// Starts everything; it serves when this returns. `cancel` ends it.
    pub async fn start(
        config: &DaemonConfig,
        tcp: TcpApi,
        cancel: CancellationToken,
    ) -> anyhow::Result<Self> {
        match &config.cluster {
            ClusterMode::SingleNode {} => {}
            ClusterMode::Raft { .. } | ClusterMode::Static { .. } | ClusterMode::WorkerTier { .. } => {
                anyhow::bail!(
                    "this version runs single nodes only: leave `cluster` out of the configuration"
                );
            }
        }
        let data_dir = DataDir::open(&config.data_dir)?;
        let bound = bind(config, tcp).await?;
        let clock = Arc::new(SystemClock::new());
        let (control, runtime) = Control::start(config, Arc::clone(&clock)).await?;
        let host = Host::open(config).await?;
        let secrets = Arc::new(SecretBox::open(&config.data_dir.join("cluster"))?);
        let agent = open_agent(config, &control, &host, &secrets).await?;
        let (agent_cancel, handle) = (CancellationToken::new(), agent.handle());
        let agent = tokio::spawn(agent.run(agent_cancel.clone()));
        let api = serve(config, &control, handle, &host, secrets, bound, &cancel);
        tracing::info!(data_dir = %config.data_dir.display(), socket = %config.socket.display(), "the daemon serves");
        Ok(Self {
            cancel,
            clock,
            runtime,
            runtime_cancel: control.cancel,
            agent_cancel,
            agent,
            api,
            host,
            _data_dir: data_dir,
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
        let api_ended = tokio::time::timeout(SHUTDOWN, &mut self.api).await;
        if api_ended.is_err() {
            tracing::warn!("requests were cut off: they took too long");
            self.api.abort();
        }
        self.agent_cancel.cancel();
        if !self.agent.is_finished() {
            // Its task only waits for its ledger, which is written in milliseconds.
            let _ = tokio::time::timeout(SHUTDOWN, &mut self.agent).await;
        }
        self.host.rest().await;
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
        match failure {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

/// An error that several wait for.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct SharedError<E: std::error::Error + Send + Sync + 'static>(Arc<E>);

async fn bind(config: &DaemonConfig, tcp: TcpApi) -> anyhow::Result<api::Bound> {
    let listeners = |tcp: Vec<std::net::SocketAddr>| api::Listeners {
        socket: Some(config.socket.clone()),
        tcp,
        tls: None,
    };
    match (api::bind(&listeners(vec![config.api_addr])).await, tcp) {
        (Ok(bound), _) => Ok(bound),
        (Err(api::BindError::Tcp { .. }), TcpApi::Optional) => {
            tracing::debug!(addr = %config.api_addr, "taken: the API is served on its Unix socket alone");
            Ok(api::bind(&listeners(Vec::new())).await?)
        }
        (Err(error), _) => Err(error.into()),
    }
}

async fn open_agent(
    config: &DaemonConfig,
    control: &Control,
    host: &Host,
    secrets: &Arc<SecretBox>,
) -> anyhow::Result<Agent> {
    // A single node has no lease that could end: it is alive as long as this process is.
    let renew = Arc::new(|_: NodeId, _: u64| {});
    let beats = HeartbeatIngest::new(control.input.clone(), control.clock.clone(), renew);
    let session = LocalSession::new(
        NODE,
        control.input.clone(),
        control.view.clone(),
        beats,
        Arc::clone(secrets),
    );
    let agent = Agent::open(AgentOptions {
        node: NODE,
        dir: config.data_dir.join("agent"),
        volumes_dir: config.data_dir.join("volumes"),
        drivers: host.drivers.clone(),
        balancer: host.balancer.clone(),
        session: Arc::new(session),
    });
    agent.await.context("the agent cannot be started")
}

/// Serves the API and fires what is scheduled.
fn serve(
    config: &DaemonConfig,
    control: &Control,
    agent: AgentHandle,
    host: &Host,
    secrets: Arc<SecretBox>,
    bound: api::Bound,
    cancel: &CancellationToken,
) -> JoinHandle<()> {
    let door = LocalDoor::new(NODE, agent, host.images.clone());
    let identity = ClusterIdentity {
        mode: (&config.cluster).into(),
        node_id: NODE,
    };
    let (view, clock) = (control.view.clone(), Arc::clone(&control.clock));
    let api = Api {
        manager: ServiceManager::new(view.clone(), Arc::clone(&clock), Arc::new(door), identity),
        input: control.input.clone(),
        secrets,
    };
    let schedules = cron::run(view, control.input.clone(), clock, cancel.clone());
    let serving = api::serve(api, bound, cancel.clone());
    tokio::spawn(async move {
        tokio::join!(schedules, serving);
    })
}
