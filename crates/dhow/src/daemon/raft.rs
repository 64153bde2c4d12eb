//! The plane of a server of a raft cluster, or of a worker tier: its part of the log, the channel to the other servers, the door for the
//! nodes' sessions, and their leases while it leads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dhow_core::command::{ClusterCommand, Command};
use dhow_core::ids::NodeId;
use dhow_core::lease::MOVE_AFTER_MS;
use dhow_core::state::{NodeRole, State};
use dhow_server::api::Beside;
use dhow_server::clock::{Clock, SystemClock};
use dhow_server::gateway::{self, GatewayOptions, GrpcLeaderDoor, NodeGateway, ServerIds, TicketIssuer};
use dhow_server::net::peer_http::{OtherServers, PeerHttp, TlsDialer};
use dhow_server::net::peers::tls::{self, ClusterIdCell, PeerOptions, TlsTransport};
use dhow_server::net::refused_log::RefusedLog;
use dhow_server::plane::cluster::{Cluster, RaftCluster};
use dhow_server::plane::leases::{LeaseOptions, Leases, PeerContact};
use dhow_server::plane::log::raft::{RaftOptions, RaftPeerAddrs};
use dhow_server::plane::runtime::{self, InputSender, OpenedRaft, RuntimeHandle, RuntimeView};
use dhow_server::plane::secrets::SecretBox;
use dhow_server::plane::storage::Storage;
use dhow_wire::{DaemonConfig, RaftPeer};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::node_info::node_info;
use super::own_session;
use super::plane::{Plane, with_past, with_sources};
use super::security::Security;
use super::tier::{self, Tier};

/// After that time the servers' ids are tried to be kept again: the log was busy.
const KEEP_AGAIN: Duration = Duration::from_secs(1);

/// Servers that hold sessions speak HTTP/2 with the one that leads.
const HOLDER_ALPN: &[&[u8]] = &[b"h2"];

/// The log's folder below the data directory.
pub const RAFT_DIR: &str = "raft";

/// Starts this server's part. It does not wait for the others: replicas run on, and the API says what is missing.
pub async fn start(
    config: &DaemonConfig,
    node: NodeId,
    peers: &[RaftPeer],
    security: Security,
    storage: Storage,
    clock: Arc<SystemClock>,
) -> anyhow::Result<Plane> {
    let clock: Arc<dyn Clock> = clock;
    let server = Server::open(config, node, peers, &security, storage, Arc::clone(&clock)).await?;
    let (input, view, end) = (server.runtime.input(), server.runtime.view(), server.end.clone());
    let others = other_servers(Arc::clone(&server.cluster));
    let tier = tier::open(
        config,
        &security,
        &clock,
        &server.runtime,
        &server.refused,
        others,
    )
    .await?;
    let leases = server.leases(config, &clock);
    let gateway = server.gateway(&security, &leases, &clock, tier.as_ref());
    let peers = PeerHttp::new(Arc::new(TlsDialer::new(security.tls.clone())));
    let door = tier
        .as_ref()
        .map_or_else(|| peers.clone(), |tier| tier.door.clone());
    let worker_tokens = tier.as_ref().map(|tier| tier.token_key.clone());
    let beside = beside(&gateway, tier.as_ref());
    let tasks = TaskTracker::new();
    tasks.spawn(gateway.clone().hold(end.clone()));
    if let Some(tier) = tier {
        tasks.spawn(tier.serve(gateway, view.clone(), end.clone()));
    }
    tasks.spawn(leases.run(end.clone()));
    tasks.spawn(found(input.clone(), view.clone(), server.cluster_id, end.clone()));
    let server_ids = server_ids(Arc::clone(&server.cluster));
    tasks.spawn(keep_server_ids(
        input.clone(),
        view.clone(),
        server_ids,
        end.clone(),
    ));
    tasks.spawn(hand_over_when_unfit(Arc::clone(&server.cluster), end.clone()));
    tasks.close();
    let info = node_info(config, NodeRole::Server);
    let cluster: Arc<dyn Cluster> = server.cluster;
    let session = own_session::with_members(node, info, Arc::clone(&cluster), &security.tls);
    Ok(Plane {
        node,
        input,
        view,
        clock,
        runtime: server.runtime,
        cancel: server.cancel,
        cluster,
        peers,
        door,
        worker_tokens,
        renew_expired_secs: config.renew_expired_secs(),
        orders: Arc::clone(&session) as _,
        session,
        secrets: Arc::new(SecretBox::from_cluster_key(&security.key)),
        beside,
        sessions: server.sessions,
        refused: server.refused,
        rest: rest(end, tasks, server.listening),
    })
}

/// What this server answers beside its API.
fn beside(gateway: &NodeGateway, tier: Option<&Tier>) -> Beside {
    let tunnels = tier.map(|tier| tier.tunnels.clone()).unwrap_or_default();
    Beside {
        nodes: gateway::routes(gateway.clone()),
        members: gateway::holder_routes(gateway.clone()).merge(gateway::tunnel_routes(tunnels)),
        workers: tier.map(|_| gateway.clone()),
        page: None,
    }
}

/// What is to be ended after the runtime.
fn rest(
    end: CancellationToken,
    tasks: TaskTracker,
    listening: tls::Listening,
) -> futures_util::future::BoxFuture<'static, ()> {
    Box::pin(async move {
        end.cancel();
        tasks.wait().await;
        // It ends by the cancellation; one that panicked has ended as well.
        let _ = listening.task.await;
    })
}

/// The log with the channel to the other servers, and the runtime on it.
struct Server {
    runtime: RuntimeHandle,
    /// Ends the runtime.
    cancel: CancellationToken,
    cluster: Arc<RaftCluster>,
    cluster_id: ClusterIdCell,
    listening: tls::Listening,
    refused: RefusedLog,
    /// Ends what stands around it.
    end: CancellationToken,
    /// Ends the sessions of nodes before that.
    sessions: CancellationToken,
}

impl Server {
    async fn open(
        config: &DaemonConfig,
        node: NodeId,
        peers: &[RaftPeer],
        security: &Security,
        storage: Storage,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let own = peers.iter().find(|peer| peer.id == node.0);
        let own = own.context("`peers` does not name this server")?;
        let cluster_id = ClusterIdCell::default();
        let refused = RefusedLog::new(Some(&config.data_dir), Arc::clone(&clock));
        let transport = TlsTransport::new(PeerOptions {
            node,
            tls: security.tls.clone(),
            cluster_id: Arc::clone(&cluster_id),
            refused: refused.clone(),
        });
        let first = peers.iter().map(addrs).collect();
        let dir = config.data_dir.join(RAFT_DIR);
        let options = RaftOptions {
            storage: storage.clone(),
            ..RaftOptions::new(node.0, first, dir, Arc::new(transport.clone()))
        };
        let first = options.peers.clone();
        let opened = runtime::open_raft(&config.data_dir, options).await;
        let OpenedRaft {
            runtime: mut opened,
            log,
        } = opened.with_context(|| {
            let dir = config.data_dir.display();
            format!("the state in {dir} cannot be opened")
        })?;
        opened.options.storage = storage;
        let end = CancellationToken::new();
        let listening = tls::listen(&transport, own.raft_addr, log.handler(), end.clone()).await;
        let listening = listening.context("the other servers cannot be listened to")?;
        let cancel = CancellationToken::new();
        let secrets = Arc::new(SecretBox::from_cluster_key(&security.key));
        let options = with_past(config, with_sources(config, opened.options, &secrets));
        let runtime = runtime::spawn_with(cancel.clone(), opened.state, clock, options);
        let cluster = Arc::new(RaftCluster {
            mode: (&config.cluster).into(),
            node,
            log,
            view: runtime.view(),
            transport,
            first,
        });
        Ok(Self {
            runtime,
            cancel,
            cluster,
            cluster_id,
            listening,
            refused,
            sessions: end.child_token(),
            end,
        })
    }

    /// The door for the nodes' sessions, which this server holds whoever leads.
    fn gateway(
        &self,
        security: &Security,
        leases: &Leases,
        clock: &Arc<dyn Clock>,
        tier: Option<&Tier>,
    ) -> NodeGateway {
        let address = session_address(Arc::clone(&self.cluster));
        let dialer = Arc::new(TlsDialer::with_alpn(security.tls.clone(), HOLDER_ALPN));
        NodeGateway::new(GatewayOptions {
            view: self.runtime.view(),
            input: self.runtime.input(),
            clock: Arc::clone(clock),
            leases: leases.clone(),
            secrets: Arc::new(SecretBox::from_cluster_key(&security.key)),
            session_address: Arc::clone(&address),
            workers: tier.map(|tier| tier.gate.clone()),
            server_ids: server_ids(Arc::clone(&self.cluster)),
            members: member_ids(Arc::clone(&self.cluster)),
            carries_assignments: true,
            tickets: Some(TicketIssuer::new(&security.key)),
            leader_door: Some(Arc::new(GrpcLeaderDoor::new(dialer, address))),
            tunnels: tier.map(|tier| tier.tunnels.clone()).unwrap_or_default(),
            reach: tier.map(|tier| Arc::clone(&tier.reach)),
            move_after_ms: MOVE_AFTER_MS,
            end: self.sessions.clone(),
        })
    }

    fn leases(&self, config: &DaemonConfig, clock: &Arc<dyn Clock>) -> Leases {
        Leases::new(LeaseOptions {
            own: Some(self.cluster.node),
            config: config.cluster.adaptive_ttl_config().unwrap_or_default(),
            clock: Arc::clone(clock),
            view: self.runtime.view(),
            input: self.runtime.input(),
            event_log: self.runtime.event_log(),
            contact: Some(Arc::new(Contact {
                transport: self.cluster.transport.clone(),
                clock: Arc::clone(clock),
            })),
        })
    }
}

fn addrs(peer: &RaftPeer) -> (u64, RaftPeerAddrs) {
    let addrs = RaftPeerAddrs {
        raft_addr: peer.raft_addr,
        api_addr: peer.api_addr,
    };
    (peer.id, addrs)
}

/// Where a server takes the sessions of nodes.
fn session_address(cluster: Arc<RaftCluster>) -> Arc<dyn Fn(NodeId) -> Option<String> + Send + Sync> {
    Arc::new(move |node| {
        let members = cluster.members();
        let member = members.iter().find(|member| member.node == node)?;
        Some(member.api_addr?.to_string())
    })
}

/// The servers but this one, and where their APIs are.
fn other_servers(cluster: Arc<RaftCluster>) -> Arc<OtherServers> {
    Arc::new(move || {
        let others = cluster
            .members()
            .into_iter()
            .filter(|member| member.node != cluster.node);
        others
            .filter_map(|member| Some((member.node, member.api_addr?)))
            .collect()
    })
}

/// The servers of the configuration, started or not, and those that were taken in since.
fn server_ids(cluster: Arc<RaftCluster>) -> Arc<ServerIds> {
    Arc::new(move || {
        let first = cluster.first.keys().copied().map(NodeId);
        let members = cluster.members().into_iter().map(|member| member.node);
        first.chain(members).collect()
    })
}

/// The servers that the cluster has now, without those that were taken out.
fn member_ids(cluster: Arc<RaftCluster>) -> Arc<ServerIds> {
    Arc::new(move || {
        let members = cluster.members().into_iter();
        members.map(|member| member.node).collect()
    })
}

/// Has the cluster keep the ids of its servers where this one leads, so that a server that has not started yet finds its
/// own when it does.
async fn keep_server_ids(
    input: InputSender,
    view: RuntimeView,
    server_ids: Arc<ServerIds>,
    end: CancellationToken,
) {
    let (mut leaderships, mut states) = (view.leaderships(), view.states());
    loop {
        let leadership = *leaderships.borrow_and_update();
        let state = states.borrow_and_update().clone();
        let leads = leadership.is_here && state.term.0 == leadership.term && state.keeps_node_ids();
        let missing = if leads {
            unkept(&state, server_ids())
        } else {
            Vec::new()
        };
        let mut again = None;
        if !missing.is_empty() {
            let keep = ClusterCommand::KeepServerIds { nodes: missing };
            if let Err(error) = input.write(Command::Cluster(keep), None).await {
                tracing::warn!(%error, "the ids of the servers are not kept yet");
                again = Some(KEEP_AGAIN);
            }
        }
        let news = tokio::select! {
            () = end.cancelled() => return,
            news = leaderships.changed() => news,
            // A busy cluster changes its state many times a second, and this one part of it hardly ever.
            news = states.wait_for(|now| {
                now.term != state.term || now.feature_level != state.feature_level
            }), if again.is_none() => news.map(drop),
            () = tokio::time::sleep(again.unwrap_or_default()), if again.is_some() => Ok(()),
        };
        if news.is_err() {
            return;
        }
    }
}

/// The servers' ids that the state does not keep yet and can keep.
fn unkept(state: &State, servers: BTreeSet<NodeId>) -> Vec<NodeId> {
    let is_first = state.node_ids.servers.is_empty();
    let missing = servers.into_iter().filter(|id| {
        let role = state.node(*id).map(|node| node.info.role);
        match role {
            _ if state.node_ids.servers.contains(id) => false,
            Some(NodeRole::Worker) => {
                tracing::error!(
                    node = %id,
                    "a server is configured with the id of a worker: it cannot take part; give the server another id"
                );
                false
            }
            Some(NodeRole::Server | NodeRole::Peer) => true,
            // One that was removed is still in the configuration, and stays removed.
            None => is_first || !state.is_node_id_known(*id),
        }
    });
    missing.collect()
}

/// What the channel between servers knows of them.
struct Contact {
    transport: TlsTransport,
    clock: Arc<dyn Clock>,
}

impl PeerContact for Contact {
    fn silent_since(&self, node: NodeId) -> Option<u64> {
        if !self.transport.is_unreachable(node) {
            return None;
        }
        self.transport.last_heard_ms(node, self.clock.monotonic_ms())
    }
}

/// How long after a write of the cluster's id did not succeed it is tried again: nothing else may ever happen in a
/// cluster that waits for it.
const FOUND_AGAIN: Duration = Duration::from_secs(1);

/// Gives a new cluster its id where this server leads, and tells the channel which it is.
pub(super) async fn found(
    input: InputSender,
    view: RuntimeView,
    cluster_id: ClusterIdCell,
    end: CancellationToken,
) {
    let (mut leaderships, mut states) = (view.leaderships(), view.states());
    loop {
        let leadership = *leaderships.borrow_and_update();
        let state = states.borrow_and_update().clone();
        if let Some(id) = &state.cluster_id {
            // Nobody else sets it.
            let _ = cluster_id.set(Arc::clone(id));
            return;
        }
        let mut is_refused = false;
        if leadership.is_here && state.term.0 == leadership.term {
            let bootstrap = ClusterCommand::Bootstrap {
                cluster_id: format!("{:032x}", rand::random::<u128>()).into(),
                feature_level: State::FEATURE_LEVEL,
                nodes_limit: Some(State::NODES_LIMIT),
            };
            match input.write(Command::Cluster(bootstrap), None).await {
                Ok(_) => continue,
                Err(error) => {
                    tracing::warn!(%error, "the cluster has no id yet; it is tried again");
                    is_refused = true;
                }
            }
        }
        let news = tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(FOUND_AGAIN), if is_refused => Ok(()),
            news = leaderships.changed() => news,
            news = states.changed() => news,
        };
        if news.is_err() {
            return;
        }
    }
}

/// A leader that is drained, and is about to be stopped, lets another one lead; so does one that can keep nothing.
async fn hand_over_when_unfit(cluster: Arc<RaftCluster>, end: CancellationToken) {
    let mut states = cluster.view.states();
    let mut leaderships = cluster.view.leaderships();
    let mut storage = cluster.view.storage().changes();
    loop {
        let state = states.borrow_and_update().clone();
        let is_gone = *storage.borrow_and_update();
        let drains = |id: NodeId| state.node(id).is_some_and(|node| node.is_draining());
        if leaderships.borrow_and_update().is_here && (drains(cluster.node) || is_gone) {
            let members = cluster.members();
            let others = members.iter().filter(|member| member.node != cluster.node);
            let mut fit =
                others.filter(|member| member.is_voter && member.is_reachable && !drains(member.node));
            if let Some(next) = fit.next() {
                cluster.hand_over_to(next.node).await;
            }
        }
        let waited = tokio::select! {
            () = end.cancelled() => return,
            news = states.changed() => news,
            news = leaderships.changed() => news,
            news = storage.changed() => news,
        };
        if waited.is_err() {
            return;
        }
    }
}
