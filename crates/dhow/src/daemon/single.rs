//! The plane of a single node: a local log, and nobody else.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dhow_core::command::{ClusterCommand, Command, NodeCommand};
use dhow_core::ids::NodeId;
use dhow_core::lease::{AdaptiveTtlConfig, MOVE_AFTER_MS};
use dhow_core::state::{Liveness, NodeRole, State};
use dhow_server::api::Beside;
use dhow_server::clock::{Clock, SystemClock};
use dhow_server::gateway::{GatewayOptions, NodeGateway};
use dhow_server::net::peer_http::{NoPeers, PeerHttp};
use dhow_server::net::refused_log::RefusedLog;
use dhow_server::net::tunnels::Tunnels;
use dhow_server::plane::cluster::SingleNode;
use dhow_server::plane::leases::{LeaseOptions, Leases};
use dhow_server::plane::log::store::StoreOptions;
use dhow_server::plane::runtime::{self, InputSender, OpenedRuntime, RuntimeHandle, RuntimeView};
use dhow_server::plane::secrets::SecretBox;
use dhow_server::plane::storage::Storage;
use dhow_wire::DaemonConfig;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::node_info::node_info;
use super::own_session::{self, Pipe};
use super::plane::{Plane, with_past, with_sources};

/// The one node of a single-node cluster.
const NODE: NodeId = NodeId(1);

/// A local log leads as soon as it is open.
const LEAD_WITHIN: Duration = Duration::from_secs(10);

/// How long after a first write did not succeed it is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// Opens the state and waits until it can be written.
pub async fn start(
    config: &DaemonConfig,
    storage: Storage,
    clock: Arc<SystemClock>,
) -> anyhow::Result<Plane> {
    let mut opened = open(&config.data_dir).await?;
    opened.options.storage = storage;
    let cancel = CancellationToken::new();
    let clock: Arc<dyn Clock> = clock;
    let secrets = Arc::new(SecretBox::open(&config.data_dir.join("cluster"))?);
    let options = with_past(config, with_sources(config, opened.options, &secrets));
    let runtime = runtime::spawn_with(cancel.clone(), opened.state, Arc::clone(&clock), options);
    let (input, view) = (runtime.input(), runtime.view());
    lead(&view).await?;
    let first = write_first(config, &input, &view).await;
    let later = first.err().map(|error| {
        let error = error.as_ref() as &dyn std::error::Error;
        tracing::error!(
            error,
            "this node cannot write what it is and has; it goes on with what it knows and tries again"
        );
        let (config, input, view) = (config.clone(), input.clone(), view.clone());
        tokio::spawn(write_later(config, input, view, cancel.clone()))
    });
    let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
    let leases = leases(&runtime, &clock);
    let pipe = Pipe {
        gateway: gateway(&runtime, &leases, &clock, &secrets, &end),
        node: NODE,
        clock: Arc::clone(&clock),
        tasks: tasks.clone(),
        end: end.clone(),
    };
    tasks.spawn(leases.run(end.clone()));
    let info = node_info(config, NodeRole::Peer);
    let session = own_session::in_process(NODE, info, pipe);
    let peers = PeerHttp::new(Arc::new(NoPeers));
    let refused = RefusedLog::new(Some(&config.data_dir), Arc::clone(&clock));
    Ok(Plane {
        node: NODE,
        input,
        view,
        clock,
        runtime,
        cancel,
        cluster: Arc::new(SingleNode {
            node: NODE,
            api_addr: config.api_addr.addr(),
        }),
        door: peers.clone(),
        peers,
        worker_tokens: None,
        renew_expired_secs: 0,
        orders: Arc::clone(&session) as _,
        session,
        secrets,
        beside: Beside::default(),
        sessions: CancellationToken::new(),
        refused,
        rest: Box::pin(async move {
            end.cancel();
            tasks.close();
            tasks.wait().await;
            if let Some(later) = later {
                // It ends with the control plane; one that panicked has ended as well.
                let _ = later.await;
            }
        }),
    })
}

/// What the gateway asks who is alive. The only node is the one that they are kept on, which is never given up.
fn leases(runtime: &RuntimeHandle, clock: &Arc<dyn Clock>) -> Leases {
    Leases::new(LeaseOptions {
        own: Some(NODE),
        config: AdaptiveTtlConfig::default(),
        clock: Arc::clone(clock),
        view: runtime.view(),
        input: runtime.input(),
        event_log: runtime.event_log(),
        contact: None,
    })
}

/// Where the agent of this process has its session.
fn gateway(
    runtime: &RuntimeHandle,
    leases: &Leases,
    clock: &Arc<dyn Clock>,
    secrets: &Arc<SecretBox>,
    end: &CancellationToken,
) -> NodeGateway {
    NodeGateway::new(GatewayOptions {
        view: runtime.view(),
        input: runtime.input(),
        clock: Arc::clone(clock),
        leases: leases.clone(),
        secrets: Arc::clone(secrets),
        session_address: Arc::new(|_| None),
        server_ids: Arc::new(BTreeSet::new),
        members: Arc::new(BTreeSet::new),
        workers: None,
        carries_assignments: true,
        tickets: None,
        leader_door: None,
        tunnels: Tunnels::default(),
        reach: None,
        move_after_ms: MOVE_AFTER_MS,
        end: end.clone(),
    })
}

async fn lead(view: &RuntimeView) -> anyhow::Result<()> {
    let mut leaderships = view.leaderships();
    let leads = leaderships.wait_for(|leadership| leadership.is_here);
    let waited = tokio::time::timeout(LEAD_WITHIN, leads).await;
    waited.context("the control plane does not come up")??;
    Ok(())
}

/// Tries what a start could not write, a full disk for one, until it is written.
pub(super) async fn write_later(
    config: DaemonConfig,
    input: InputSender,
    view: RuntimeView,
    cancel: CancellationToken,
) {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(WRITE_AGAIN) => {}
        }
        match write_first(&config, &input, &view).await {
            Ok(()) => return tracing::info!("this node has written what it is and has"),
            Err(error) => tracing::debug!(%error, "this node cannot write yet what it is and has"),
        }
    }
}

/// A new cluster gets its id; the node says what it is and has.
pub(super) async fn write_first(
    config: &DaemonConfig,
    input: &InputSender,
    view: &RuntimeView,
) -> anyhow::Result<()> {
    let state = view.state();
    if state.cluster_id.is_none() {
        let bootstrap = ClusterCommand::Bootstrap {
            cluster_id: format!("{:032x}", rand::random::<u128>()).into(),
            feature_level: State::FEATURE_LEVEL,
            nodes_limit: Some(State::NODES_LIMIT),
        };
        input.write(Command::Cluster(bootstrap), None).await?;
    }
    let info = Arc::new(node_info(config, NodeRole::Peer));
    let known = state.node(NODE);
    if known.is_none_or(|node| node.info != info) {
        let register = NodeCommand::Register { node: NODE, info };
        input.write(Command::Node(register), None).await?;
    }
    if known.is_some_and(|node| node.liveness != Liveness::Ready) {
        let back = NodeCommand::Back { node: NODE };
        input.write(Command::Node(back), None).await?;
    }
    Ok(())
}

async fn open(data_dir: &Path) -> anyhow::Result<OpenedRuntime> {
    let dir = data_dir.to_owned();
    let opened = tokio::task::spawn_blocking(move || runtime::open_local(&dir, StoreOptions::default()));
    opened
        .await?
        .with_context(|| format!("the state in {} cannot be opened", data_dir.display()))
}
