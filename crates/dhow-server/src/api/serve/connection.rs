//! One connection and its requests.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use dhow_wire::ByteStream;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::tls::{ApiTls, NotOpened, Opened};
use super::unread::UnreadBody;
use crate::api::limits::{
    HEADER_BYTES_MAX, HEADER_LIST_BYTES_MAX, HEADER_TIMEOUT, PARTING, PING_EVERY, PING_TIMEOUT,
    RESET_STREAMS_MAX, SEND_BYTES_MAX, STREAMS_MAX,
};
use crate::clock::Clock;
use crate::gateway::HeardStream;
use crate::net::identity::Peer;
use crate::net::lobby::Visit;
use crate::net::refused_log::RefusedLog;

/// How long nothing is accepted after the host refused to: it is out of files, and asking at once again helps nobody.
const REST: Duration = Duration::from_millis(100);

/// What every connection needs.
#[derive(Clone)]
pub(super) struct Server {
    pub router: Router,
    pub clock: Arc<dyn Clock>,
    pub cancel: CancellationToken,
    pub connections: TaskTracker,
    pub refused: RefusedLog,
    /// Cuts off what has not ended in time.
    pub abort: CancellationToken,
}

impl Server {
    /// After a failed accept.
    pub async fn rest(&self, error: &io::Error) {
        tracing::warn!(%error, "a connection cannot be accepted");
        tokio::time::sleep(REST).await;
    }

    /// Serves a connection in a task of its own, when its turn has come.
    pub fn start<S>(&self, stream: S, peer: Peer, visit: Visit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (router, cancel, abort) = (self.router.clone(), self.cancel.clone(), self.abort.clone());
        let (clock, bodies) = (Arc::clone(&self.clock), self.connections.clone());
        self.connections.spawn(async move {
            tokio::select! {
                () = run(stream, peer, router, clock, bodies, cancel, visit) => {}
                () = abort.cancelled() => {}
            }
        });
    }

    /// The same for one that may begin with TLS.
    pub fn open(
        &self,
        tls: ApiTls,
        stream: TcpStream,
        addr: SocketAddr,
        is_plain_served: bool,
        visit: Visit,
    ) {
        let place = visit.clone();
        let opening = async move {
            place.turn().await;
            tls.open(stream, addr, is_plain_served, &place).await
        };
        self.begin(opening, addr, visit);
    }

    /// The same for one that this process has dialled.
    pub fn open_tunnel(&self, tls: ApiTls, stream: Box<dyn ByteStream>, addr: SocketAddr, visit: Visit) {
        let place = visit.clone();
        let opening = async move {
            place.turn().await;
            let opened = tls.open_tunnel(stream, addr, &place).await;
            opened.map(|(stream, peer)| Opened::<_, TcpStream>::Tls(stream, peer))
        };
        self.begin(opening, addr, visit);
    }

    fn begin<S, P>(
        &self,
        opening: impl Future<Output = Result<Opened<S, P>, NotOpened>> + Send + 'static,
        addr: SocketAddr,
        visit: Visit,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        P: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let server = self.clone();
        self.connections.spawn(async move {
            let opened = tokio::select! {
                // Nothing is computed for one that has to go.
                biased;
                () = visit.over() => Err(NotOpened::Silent("others needed its place".into())),
                opened = opening => opened,
                () = server.cancel.cancelled() => return,
            };
            match opened {
                Ok(Opened::Tls(stream, peer)) => {
                    if let Some(name) = peer.proved() {
                        visit.prove(Some(&name));
                    }
                    server.start(*stream, peer, visit);
                }
                Ok(Opened::Plain(stream)) => server.start(stream, Peer::Tcp(addr), visit),
                // Anybody can cause this as often as they like, so that it stays out of the log.
                Err(NotOpened::Silent(why)) => tracing::debug!(%addr, why, "a caller did not come in"),
                Err(NotOpened::Refused(why)) => {
                    tracing::debug!(%addr, why, "a caller is refused");
                    server.refused.tell(addr.ip(), &why);
                }
            }
        });
    }
}

async fn run<S>(
    stream: S,
    peer: Peer,
    router: Router,
    clock: Arc<dyn Clock>,
    bodies: TaskTracker,
    cancel: CancellationToken,
    visit: Visit,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::select! {
        () = visit.turn() => {}
        () = visit.over() => return,
        () = cancel.cancelled() => return,
    }
    let place = visit.clone();
    let stream = HeardStream::new(stream, clock);
    let heard = stream.last_heard();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        // The nodes' sessions are judged by it.
        request.extensions_mut().insert(heard.clone());
        // Whoever finds out who calls says so there.
        request.extensions_mut().insert(place.clone());
        let version = request.version();
        let request = request.map(|body| Body::new(UnreadBody::new(version, body, &bodies)));
        router.clone().oneshot(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(RESET_STREAMS_MAX)
        .max_send_buf_size(SEND_BYTES_MAX);
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = cancel.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = visit.over() => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(PARTING, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
