//! One connection and its requests.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::tls::{ApiTls, Opened};
use super::unread::UnreadBody;
use crate::api::access::Peer;
use crate::api::limits::{CONNECTIONS_MAX, HEADER_TIMEOUT, PARTING, PING_EVERY, PING_TIMEOUT};
use crate::clock::Clock;
use crate::gateway::HeardStream;
use crate::lobby::Visit;

/// How long nothing is accepted after the host refused to: it is out of files, and asking at once again helps nobody.
const REST: Duration = Duration::from_millis(100);

/// What a connection has for as long as it lives.
pub(super) struct Place {
    _room: Option<OwnedSemaphorePermit>,
    visit: Option<Visit>,
}

impl From<OwnedSemaphorePermit> for Place {
    fn from(room: OwnedSemaphorePermit) -> Self {
        Self {
            _room: Some(room),
            visit: None,
        }
    }
}

impl From<Visit> for Place {
    fn from(visit: Visit) -> Self {
        Self {
            _room: None,
            visit: Some(visit),
        }
    }
}

impl Place {
    /// Resolves where the connection has to end because somebody else needs its place.
    async fn over(&self) {
        match &self.visit {
            None => std::future::pending().await,
            Some(visit) => visit.over().await,
        }
    }
}

/// What every connection needs.
#[derive(Clone)]
pub(super) struct Server {
    pub router: Router,
    pub clock: Arc<dyn Clock>,
    pub cancel: CancellationToken,
    pub connections: TaskTracker,
    pub room: Arc<Semaphore>,
    /// Cuts off what has not ended in time.
    pub abort: CancellationToken,
}

impl Server {
    /// The same with room of its own.
    pub fn with_own_room(&self) -> Self {
        Self {
            room: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            ..self.clone()
        }
    }

    /// Waits for room for one more connection; none at the end.
    pub async fn room(&self) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            room = Arc::clone(&self.room).acquire_owned() => room.ok(),
            () = self.cancel.cancelled() => None,
        }
    }

    /// After a failed accept.
    pub async fn rest(&self, error: &io::Error) {
        tracing::warn!(%error, "a connection cannot be accepted");
        tokio::time::sleep(REST).await;
    }

    /// Serves a connection in a task of its own.
    pub fn start<S>(&self, stream: S, peer: Peer, place: Place)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (router, cancel, abort) = (self.router.clone(), self.cancel.clone(), self.abort.clone());
        let (clock, bodies) = (Arc::clone(&self.clock), self.connections.clone());
        self.connections.spawn(async move {
            tokio::select! {
                () = run(stream, peer, router, clock, bodies, cancel, place) => {}
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
        let server = self.clone();
        self.connections.spawn(async move {
            let opening = async {
                visit.turn().await;
                tls.open(stream, addr, is_plain_served).await
            };
            let opened = tokio::select! {
                opened = opening => opened,
                () = visit.over() => Err("others needed its place".into()),
                () = server.cancel.cancelled() => return,
            };
            match opened {
                Ok(Opened::Tls(stream, peer)) => {
                    if let Some(name) = peer.proved() {
                        visit.prove(Some(&name));
                    }
                    server.start(*stream, peer, visit.into());
                }
                Ok(Opened::Plain(stream)) => server.start(stream, Peer::Tcp(addr), visit.into()),
                // Anybody can cause this as often as they like, so that it stays out of the log.
                Err(why) => tracing::debug!(%addr, why, "a caller is refused"),
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
    place: Place,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let visit = place.visit.clone();
    let stream = HeardStream::new(stream, clock);
    let heard = stream.last_heard();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        // The nodes' sessions are judged by it.
        request.extensions_mut().insert(heard.clone());
        // Whoever finds out who calls says so there.
        if let Some(visit) = &visit {
            request.extensions_mut().insert(visit.clone());
        }
        let version = request.version();
        let request = request.map(|body| Body::new(UnreadBody::new(version, body, &bodies)));
        router.clone().oneshot(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = cancel.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = place.over() => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(PARTING, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
