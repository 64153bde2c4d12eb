//! Listeners, connections and their end.

mod bind;
mod connection;
mod error;
mod tls;
mod unix_socket;
mod unread;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use dhow_wire::ByteStream;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access::Access;
use super::context::Api;
use super::limits::{DRAIN_DEADLINE, GUESTS_MAX, PER_CALLER_MAX, UNIX_MAX};
use super::router::{Beside, router_with};
use crate::clock::Clock;
use crate::net::identity::Peer;
use crate::net::lobby::{FILES_LEFT, Lobby, LobbyLimits};
use crate::net::refused_log::RefusedLog;

pub use bind::bind;
use connection::Server;
pub use error::BindError;
pub use tls::ApiTls;
use unix_socket::SocketFile;
pub use unix_socket::socket_group;

/// Where the API is reached.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    pub socket: Option<PathBuf>,
    /// Whose members may use the socket besides its owner.
    pub socket_group: Option<u32>,
    /// Loopback alone where there is no TLS.
    pub tcp: Vec<SocketAddr>,
    /// On loopback plain HTTP is served beside it, on any other address TLS alone.
    pub tls: Option<ApiTls>,
}

/// Listeners that are open: whoever connects waits until they are served.
#[derive(Debug)]
pub struct Bound {
    unix: Option<(UnixListener, SocketFile)>,
    tcp: Vec<TcpListener>,
    tls: Option<ApiTls>,
    tunnels: Option<mpsc::Receiver<Tunneled>>,
}

/// A connection that this process has dialled itself, and on which the other side now calls. The address is the other
/// side's.
pub struct Tunneled {
    pub stream: Box<dyn ByteStream>,
    pub addr: SocketAddr,
}

impl std::fmt::Debug for Tunneled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tunneled({})", self.addr)
    }
}

impl Bound {
    /// Serves what comes over this channel too, as if it had been accepted. Whoever sends bounds it.
    #[must_use]
    pub fn with_tunnels(self, tunnels: mpsc::Receiver<Tunneled>) -> Self {
        let tunnels = Some(tunnels);
        Self { tunnels, ..self }
    }

    /// The addresses with the ports that the host has given.
    pub fn tcp_addrs(&self) -> Vec<SocketAddr> {
        let all = self.tcp.iter();
        all.filter_map(|listener| listener.local_addr().ok()).collect()
    }
}

/// Serves until `cancel` is cancelled: then nothing new is taken, open streams end, and what is under way has a few
/// seconds to finish.
pub async fn serve(api: Api, bound: Bound, cancel: CancellationToken) {
    serve_with(api, Beside::default(), bound, cancel).await;
}

/// The same with further routes, which are guarded alike.
pub async fn serve_with(api: Api, beside: Beside, bound: Bound, cancel: CancellationToken) {
    let ca = bound.tls.as_ref().map(ApiTls::fingerprint);
    let access = Access::new(&api, ca);
    let (clock, refused) = (Arc::clone(api.manager.clock()), api.refused.clone());
    let router = router_with(api, beside, access, cancel.clone());
    serve_router(router, clock, refused, bound, cancel).await;
}

/// Serves these routes, which say by themselves who may call: each request carries its [`Peer`].
pub(super) async fn serve_router(
    router: Router,
    clock: Arc<dyn Clock>,
    refused: RefusedLog,
    bound: Bound,
    cancel: CancellationToken,
) {
    let server = Server {
        clock,
        router,
        cancel: cancel.clone(),
        connections: TaskTracker::new(),
        refused,
        abort: CancellationToken::new(),
    };
    let listening = TaskTracker::new();
    let mut file = None;
    if let Some((listener, socket_file)) = bound.unix {
        file = Some(socket_file);
        let server = server.clone();
        listening.spawn(async move { accept_unix(listener, server).await });
    }
    for listener in bound.tcp {
        let (server, tls) = (server.clone(), bound.tls.clone());
        listening.spawn(async move { accept_tcp(listener, tls, server).await });
    }
    if let (Some(tunnels), Some(tls)) = (bound.tunnels, bound.tls) {
        let server = server.clone();
        listening.spawn(async move { accept_tunnels(tunnels, tls, server).await });
    }
    listening.close();
    cancel.cancelled().await;
    listening.wait().await;
    drop(file);
    server.connections.close();
    if tokio::time::timeout(DRAIN_DEADLINE, server.connections.wait())
        .await
        .is_err()
    {
        tracing::warn!(open = server.connections.len(), "connections are cut off");
        server.abort.cancel();
        server.connections.wait().await;
    }
}

async fn accept_unix(listener: UnixListener, server: Server) {
    let lobby = Lobby::new(LobbyLimits::of_host(UNIX_MAX, UNIX_MAX, FILES_LEFT));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = server.cancel.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => match stream.peer_cred() {
                Ok(peer) => {
                    // One that finds no room is closed, and tries again.
                    if let Some(visit) = lobby.enter_user(peer.uid()).await {
                        server.start(stream, Peer::Unix { uid: peer.uid() }, visit);
                    }
                }
                Err(error) => tracing::debug!(%error, "a client has gone before it was known"),
            },
            Err(error) => server.rest(&error).await,
        }
    }
}

/// Each is looked at like one that came in at the port.
async fn accept_tunnels(mut tunnels: mpsc::Receiver<Tunneled>, tls: ApiTls, server: Server) {
    let lobby = Lobby::new(LobbyLimits::of_host(GUESTS_MAX, PER_CALLER_MAX, FILES_LEFT));
    loop {
        let next = tokio::select! {
            next = tunnels.recv() => next,
            () = server.cancel.cancelled() => return,
        };
        let Some(Tunneled { stream, addr }) = next else {
            return;
        };
        if let Some(visit) = lobby.enter(addr).await {
            server.open_tunnel(tls.clone(), stream, addr, visit);
        }
    }
}

async fn accept_tcp(listener: TcpListener, tls: Option<ApiTls>, server: Server) {
    let is_loopback = listener.local_addr().is_ok_and(|addr| addr.ip().is_loopback());
    let lobby = Lobby::new(LobbyLimits::of_host(GUESTS_MAX, PER_CALLER_MAX, FILES_LEFT));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = server.cancel.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                // One that finds no room is closed, and tries again.
                let Some(visit) = lobby.enter(peer).await else {
                    continue;
                };
                // Small answers go out at once; where that cannot be set they are only slower.
                let _ = stream.set_nodelay(true);
                match &tls {
                    Some(tls) => server.open(tls.clone(), stream, peer, is_loopback, visit),
                    None => server.start(stream, Peer::Tcp(peer), visit),
                }
            }
            Err(error) => server.rest(&error).await,
        }
    }
}
