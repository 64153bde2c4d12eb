//! The session of an agent whose node has a control plane of its own: the one that workers have too. It tries its own
//! server first and then the others; on a single node there is only the one of the same process, behind a pipe.

use std::sync::Arc;
use std::time::Duration;

use dhow_agent::session::grpc::{
    Connector, ConnectorFuture, Endpoint, FixedRoutes, GrpcOptions, GrpcSession, Routes,
};
use dhow_agent::{Highest, KnownDirectory, Orders, SessionFuture};
use dhow_core::assignment::Assignment;
use dhow_core::ids::{NodeId, Revision};
use dhow_core::state::NodeInfo;
use dhow_server::clock::Clock;
use dhow_server::gateway::{self, Accepted, NodeGateway};
use dhow_server::net::identity::Peer;
use dhow_server::net::keys::NodeTls;
use dhow_server::net::peer_http::{Dialer, TlsDialer};
use dhow_server::plane::cluster::Cluster;
use dhow_server::plane::scale::OwnWork;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::directory_feed::DirectoryFeed;

/// Sessions speak HTTP/2.
const ALPN: &[&[u8]] = &[b"h2"];

/// What is on its way in one direction of a pipe: a report of many changes, and an assignment of many services goes on
/// as it is read.
const PIPE_BYTES: usize = 64 * 1024;

/// The least time between two reports to the same process: as often as a gateway hears one node for good.
const PIPE_REPORT_GAP: Duration = Duration::from_millis(50);

/// Begins the session of a node with the members of its cluster.
pub fn with_members(
    node: NodeId,
    info: NodeInfo,
    cluster: Arc<dyn Cluster>,
    tls: &NodeTls,
) -> Arc<GrpcSession> {
    let routes = Arc::new(Members { cluster });
    let connector = Arc::new(MemberConnector(TlsDialer::with_alpn(tls.clone(), ALPN)));
    Arc::new(GrpcSession::start(GrpcOptions::new(
        node, info, routes, connector,
    )))
}

/// Begins the session of a node with the control plane of the same process.
pub fn in_process(node: NodeId, info: NodeInfo, pipe: Pipe) -> Arc<GrpcSession> {
    let own = Endpoint {
        node: Some(node),
        address: "this process".to_owned(),
    };
    let routes = Arc::new(FixedRoutes(vec![own]));
    let options = GrpcOptions::new(node, info, routes, Arc::new(pipe));
    Arc::new(GrpcSession::start(GrpcOptions {
        report_gap: PIPE_REPORT_GAP,
        keep_alive: None,
        ..options
    }))
}

/// The servers, as this one knows them.
struct Members {
    cluster: Arc<dyn Cluster>,
}

impl Routes for Members {
    /// Nobody for a server that the others do not take back: what it runs is not the cluster's any more.
    fn all(&self) -> Vec<Endpoint> {
        if self.cluster.is_refused() {
            return Vec::new();
        }
        let members = self.cluster.members().into_iter();
        members
            .filter_map(|member| {
                Some(Endpoint {
                    node: Some(member.node),
                    address: member.api_addr?.to_string(),
                })
            })
            .collect()
    }

    fn is_closed(&self) -> bool {
        true
    }
}

/// TLS to members.
struct MemberConnector(TlsDialer);

impl Connector for MemberConnector {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> ConnectorFuture<'a> {
        Box::pin(async move {
            let unknown = || std::io::Error::other("nobody knows which server that is");
            let node = endpoint.node.ok_or_else(unknown)?;
            let addr = endpoint.address.parse().map_err(std::io::Error::other)?;
            self.0.dial(node, addr).await
        })
    }
}

/// The way of an agent to the gateway of the same process: no network, and nobody else at the other end.
pub struct Pipe {
    pub gateway: NodeGateway,
    pub node: NodeId,
    pub clock: Arc<dyn Clock>,
    /// The gateway's ends of the pipes, one for each connection of the session.
    pub tasks: TaskTracker,
    pub end: CancellationToken,
}

impl Connector for Pipe {
    fn connect<'a>(&'a self, _endpoint: &'a Endpoint) -> ConnectorFuture<'a> {
        let (agents, gateways) = tokio::io::duplex(PIPE_BYTES);
        let accepted = Accepted {
            stream: Box::new(gateways),
            peer: Peer::OwnAgent(self.node),
        };
        let routes = gateway::routes(self.gateway.clone());
        let clock = Arc::clone(&self.clock);
        self.tasks.spawn(gateway::serve_connection(
            routes,
            accepted,
            clock,
            self.end.clone(),
        ));
        Box::pin(async move { Ok(Box::new(agents) as _) })
    }
}

/// The orders of a node of a static cluster: it reads them off its own copy of the state.
pub struct OwnCopy {
    pub work: OwnWork,
    pub directory: DirectoryFeed,
}

impl Orders for OwnCopy {
    fn assignments(&self, last: Option<Revision>) -> SessionFuture<'_, Assignment> {
        Box::pin(async move {
            let next = self.work.next(last).await;
            self.directory.refresh();
            Ok(next)
        })
    }

    /// A leader that asks a peer into an epoch has learned the peer's own before, and begins above it.
    fn acted_on(&self, _highest: &Highest) {}

    fn directory(&self) -> watch::Receiver<Option<Arc<KnownDirectory>>> {
        self.directory.subscribe()
    }
}
