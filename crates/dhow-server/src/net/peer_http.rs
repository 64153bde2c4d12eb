//! HTTP between members: how one server asks another one's API on behalf of a caller, and for what only a node has.
//!
//! Called by the API's forwarding, by the door to other nodes, by static peers and by whoever asks which feature level
//! others know. Connections are kept and reused. How a connection is made is the [`Dialer`]'s business; it must never
//! connect to anybody but the node that is meant.

mod tls;
mod worker;
mod worker_ways;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, Uri, header, uri};
use dhow_core::ids::NodeId;
use dhow_wire::ByteStream;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub use tls::TlsDialer;
pub use worker::{OtherCluster, WorkerDialer, dial_server};
pub use worker_ways::{IsReversed, OtherServers, TUNNEL_PATH, TUNNEL_UPGRADE, WorkerWays};

/// Idle connections to one member: as many as its own callers have at once, in calm times.
const IDLE_CONNECTIONS_MAX: usize = 16;
/// A connection that was not used for so long is given up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// A node that cannot be connected to by then is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to members.
pub trait Dialer: Send + Sync {
    /// A connection to this very node, which has proved to be it.
    fn dial(&self, node: NodeId, addr: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>>;
}

/// Of a single node, which has nobody to call.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPeers;

impl Dialer for NoPeers {
    fn dial(&self, _: NodeId, _: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> {
        let error = io::Error::new(io::ErrorKind::NotFound, "a single node has no peers");
        Box::pin(std::future::ready(Err(error)))
    }
}

/// Why a member has not answered.
#[derive(Debug, thiserror::Error)]
pub enum PeerHttpError {
    /// Nothing was sent.
    #[error("node {node} cannot be reached at {addr}: {why}")]
    Connect {
        node: NodeId,
        addr: SocketAddr,
        why: String,
    },
    /// Whether it arrived is not known.
    #[error("node {node} did not answer: {why}")]
    Broken { node: NodeId, why: String },
}

/// An HTTP client for the APIs of other nodes, with its pool of connections; clones share the pool.
#[derive(Clone)]
pub struct PeerHttp {
    client: Client<Connector, Body>,
}

impl PeerHttp {
    pub fn new(dialer: Arc<dyn Dialer>) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .set_host(false)
            .build(Connector { dialer });
        Self { client }
    }

    /// Asks a member. The request's address is its path alone.
    pub async fn send(
        &self,
        node: NodeId,
        addr: SocketAddr,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, PeerHttpError> {
        let broken = |why: String| PeerHttpError::Broken { node, why };
        let mut parts = request.uri().clone().into_parts();
        parts.scheme = Some(uri::Scheme::HTTP);
        // The pool keeps connections by this: the node is part of it, so that an address that another node took over
        // is never spoken to on an old connection.
        let authority = format!("{}@{addr}", node.0).parse::<uri::Authority>();
        parts.authority = Some(authority.map_err(|error| broken(error.to_string()))?);
        *request.uri_mut() = Uri::from_parts(parts).map_err(|error| broken(error.to_string()))?;
        let host = HeaderValue::from_str(&addr.to_string()).map_err(|error| broken(error.to_string()))?;
        request.headers_mut().insert(header::HOST, host);
        self.client.request(request).await.map_err(|error| {
            let mut why = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(inner) = cause {
                why = inner.to_string();
                cause = inner.source();
            }
            match error.is_connect() {
                true => PeerHttpError::Connect { node, addr, why },
                false => PeerHttpError::Broken { node, why },
            }
        })
    }
}

#[derive(Clone)]
struct Connector {
    dialer: Arc<dyn Dialer>,
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Dialed>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<Dialed>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let target = uri.authority().and_then(|authority| {
            let (node, addr) = authority.as_str().split_once('@')?;
            Some((NodeId(node.parse().ok()?), addr.parse::<SocketAddr>().ok()?))
        });
        let Some((node, addr)) = target else {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "no member is named");
            return Box::pin(std::future::ready(Err(error)));
        };
        let dialing = self.dialer.dial(node, addr);
        Box::pin(async move {
            let dialed = tokio::time::timeout(CONNECT_TIMEOUT, dialing).await;
            let late = || io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
            Ok(TokioIo::new(Dialed(dialed.map_err(|_| late())??)))
        })
    }
}

/// A dialed connection, as the pool wants it.
pub(crate) struct Dialed(pub Box<dyn ByteStream>);

impl Connection for Dialed {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Dialed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Dialed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
