//! A server's ways to a worker's door: it dials the worker, or has the worker dial back to the server that holds its
//! session.
//!
//! A worker that says of itself that nobody can dial it is asked to dial back at once. For every other one the direct way
//! has a head start; where the other way wins, that is remembered, so that only the first call waits.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use dhow_core::ids::NodeId;
use dhow_wire::ByteStream;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::worker::WorkerDialer;
use super::{Dialer, TlsDialer};
use crate::net::tunnels::Tunnels;

/// What members upgrade a connection to that carries another one to a worker.
pub const TUNNEL_UPGRADE: &str = "dhow-tunnel";
/// Where they ask for it; the node's id follows.
pub const TUNNEL_PATH: &str = "/api/v1/internal/tunnels";

/// How long the direct way is tried alone: a worker that can be dialled answers within a round trip or two.
const HEAD_START: Duration = Duration::from_millis(400);
/// How long it is remembered that the direct way does not lead there.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Workers of which that is remembered: as many as a server has sessions of. At some 32 bytes each, half a megabyte.
const REMEMBERED_MAX: usize = 16_384;

/// Whether a worker says that nobody can dial it.
pub type IsReversed = dyn Fn(NodeId) -> bool + Send + Sync;
/// The other servers and where their APIs are.
pub type OtherServers = dyn Fn() -> Vec<(NodeId, SocketAddr)> + Send + Sync;

/// The ways to workers; clones share what they have learned.
#[derive(Clone)]
pub struct WorkerWays {
    direct: WorkerDialer,
    members: TlsDialer,
    tunnels: Tunnels,
    is_reversed: Arc<IsReversed>,
    others: Arc<OtherServers>,
    undialled: Arc<Mutex<BTreeMap<NodeId, Instant>>>,
}

impl WorkerWays {
    pub fn new(
        direct: WorkerDialer,
        members: TlsDialer,
        tunnels: Tunnels,
        is_reversed: Arc<IsReversed>,
        others: Arc<OtherServers>,
    ) -> Self {
        Self {
            direct,
            members,
            tunnels,
            is_reversed,
            others,
            undialled: Arc::default(),
        }
    }

    async fn reach(self, node: NodeId, addr: SocketAddr) -> io::Result<Box<dyn ByteStream>> {
        if (self.is_reversed)(node) {
            return self.back(node).await;
        }
        if self.is_undialled(node) {
            match self.back(node).await {
                Ok(stream) => return Ok(stream),
                // It may have a way of its own by now.
                Err(_) => self.undialled().remove(&node),
            };
        }
        let mut direct = self.direct.dial(node, addr);
        let first = tokio::time::timeout(HEAD_START, &mut direct).await;
        let refused = match first {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        let back = self.back(node);
        tokio::pin!(back);
        if let Some(refused) = refused {
            let came = back.await.map_err(|_| refused)?;
            self.remember(node);
            return Ok(came);
        }
        // Whichever comes first; who fails leaves it to the other.
        tokio::select! {
            dialled = &mut direct => match dialled {
                Ok(stream) => Ok(stream),
                Err(error) => back.await.map_err(|_| error).inspect(|_| self.remember(node)),
            },
            came = &mut back => match came {
                Ok(stream) => {
                    self.remember(node);
                    Ok(stream)
                }
                Err(_) => direct.await,
            },
        }
    }

    /// Has it dial back to this server, or to the one that holds its session.
    async fn back(&self, node: NodeId) -> io::Result<Box<dyn ByteStream>> {
        let stream: Box<dyn ByteStream> = match self.tunnels.ask(node).await {
            Ok(tunnel) => Box::new(tunnel),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => self.through_holder(node).await?,
            Err(error) => return Err(error),
        };
        self.direct.greet(node, stream).await
    }

    /// Nobody keeps a table of who holds whose session: the others are asked together, and one of them has it.
    async fn through_holder(&self, node: NodeId) -> io::Result<Box<dyn ByteStream>> {
        let others = (self.others)().into_iter();
        let mut asked: FuturesUnordered<_> = others
            .map(|(server, addr)| through(&self.members, server, addr, node))
            .collect();
        while let Some(answered) = asked.next().await {
            if let Ok(stream) = answered {
                return Ok(stream);
            }
        }
        let why = format!("no server that answers has a session with node {node}");
        Err(io::Error::new(io::ErrorKind::NotConnected, why))
    }

    fn is_undialled(&self, node: NodeId) -> bool {
        let mut undialled = self.undialled();
        undialled.retain(|_, since| since.elapsed() < REMEMBERED);
        undialled.contains_key(&node)
    }

    fn remember(&self, node: NodeId) {
        let mut undialled = self.undialled();
        if undialled.len() < REMEMBERED_MAX {
            undialled.insert(node, Instant::now());
        }
    }

    fn undialled(&self) -> MutexGuard<'_, BTreeMap<NodeId, Instant>> {
        // Changed by single inserts and removes, so one left by a panic is whole.
        self.undialled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dialer for WorkerWays {
    fn dial(&self, node: NodeId, addr: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> {
        Box::pin(self.clone().reach(node, addr))
    }
}

/// A connection to a worker through a server that holds its session.
async fn through(
    members: &TlsDialer,
    server: NodeId,
    addr: SocketAddr,
    node: NodeId,
) -> io::Result<Box<dyn ByteStream>> {
    let stream = members.dial(server, addr).await?;
    let greeted = http1::handshake::<_, Body>(TokioIo::new(stream)).await;
    let (mut sender, connection) = greeted.map_err(io::Error::other)?;
    // It ends when it is upgraded, or with its other end.
    tokio::spawn(connection.with_upgrades());
    let request = Request::get(format!("{TUNNEL_PATH}/{node}"))
        .header(header::HOST, addr.to_string())
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, TUNNEL_UPGRADE)
        .body(Body::empty());
    let response = sender.send_request(request.map_err(io::Error::other)?).await;
    let response = response.map_err(io::Error::other)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(io::Error::other)?;
    Ok(Box::new(TokioIo::new(upgraded)))
}
