//! The session of a server's own agent: it tries its own server first and then the others, over the same protocol as a
//! worker's, also where that is the very same process.

use std::sync::Arc;

use dhow_agent::session::grpc::{Connector, ConnectorFuture, Endpoint, GrpcOptions, GrpcSession, Routes};
use dhow_core::ids::NodeId;
use dhow_core::state::NodeInfo;
use dhow_server::net::keys::NodeTls;
use dhow_server::net::peer_http::{Dialer, TlsDialer};
use dhow_server::plane::cluster::Cluster;

/// Sessions speak HTTP/2.
const ALPN: &[&[u8]] = &[b"h2"];

/// Begins the session.
pub fn start(node: NodeId, info: NodeInfo, cluster: Arc<dyn Cluster>, tls: &NodeTls) -> GrpcSession {
    let routes = Arc::new(LeaderRoutes { cluster });
    let connector = Arc::new(MemberConnector(TlsDialer::with_alpn(tls.clone(), ALPN)));
    GrpcSession::start(GrpcOptions::new(node, info, routes, connector))
}

/// The servers, as this one knows them.
struct LeaderRoutes {
    cluster: Arc<dyn Cluster>,
}

impl Routes for LeaderRoutes {
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
