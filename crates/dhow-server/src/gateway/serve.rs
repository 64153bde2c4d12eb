//! Connections of nodes, TLS ended elsewhere: HTTP/2 with pings both ways, so that a cut link breaks its session.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::HeaderMap;
use dhow_wire::ByteStream;
use dhow_wire::grpc::KeepAlive;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::coarse_timer::CoarseTimer;
use super::heard::HeardStream;
use super::limits::{CONNECTIONS_MAX, DRAIN_DEADLINE_MS, HEADER_BYTES_MAX, RESET_STREAMS_MAX, STREAMS_MAX};
use super::node_gateway::{NodeGateway, routes};
use super::silence::{self, PONG_TIMEOUT};
use super::verdict::{self, Verdict};
use super::workers::ExpiredIdentity;
use crate::clock::Clock;
use crate::net::identity::Peer;
use crate::net::lobby::Visit;
use crate::net::refused_log::RefusedLog;

/// A connection whose other end is known: TLS has ended, or there is none.
pub struct Accepted {
    /// In clear.
    pub stream: Box<dyn ByteStream>,
    pub peer: Peer,
}

/// Serves what is accepted until `end`: then nothing new is taken, sessions are told, and connections have a moment
/// to end. Whoever accepts bounds the channel; connections above the limit wait in it.
pub async fn serve(
    gateway: NodeGateway,
    mut incoming: mpsc::Receiver<Accepted>,
    clock: Arc<dyn Clock>,
    end: CancellationToken,
) {
    let (router, connections) = (routes(gateway), TaskTracker::new());
    let (room, abort) = (
        Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        CancellationToken::new(),
    );
    loop {
        let next = async {
            let place = Arc::clone(&room).acquire_owned().await.ok()?;
            Some((place, incoming.recv().await?))
        };
        let (place, accepted) = tokio::select! {
            () = end.cancelled() => break,
            next = next => match next {
                Some(next) => next,
                None => break,
            },
        };
        let (router, clock) = (router.clone(), Arc::clone(&clock));
        let (end, abort) = (end.clone(), abort.clone());
        connections.spawn(async move {
            let _place = place;
            tokio::select! {
                () = serve_connection(router, accepted, clock, end) => {}
                () = abort.cancelled() => {}
            }
        });
    }
    connections.close();
    let until_ms = clock.monotonic_ms().saturating_add(DRAIN_DEADLINE_MS);
    tokio::select! {
        () = connections.wait() => return,
        () = clock.sleep_until_monotonic(until_ms) => abort.cancel(),
    }
    connections.wait().await;
}

/// Serves one connection to its end.
pub async fn serve_connection(
    router: Router,
    accepted: Accepted,
    clock: Arc<dyn Clock>,
    end: CancellationToken,
) {
    let connected = Connected {
        stream: accepted.stream,
        peer: accepted.peer,
        expired: None,
        keep_alive: KeepAlive::OFTEN,
        door: None,
    };
    serve_stream(router, connected, clock, end).await;
}

/// A connection that may be known by an expired certificate alone.
pub(super) struct Connected {
    pub stream: Box<dyn ByteStream>,
    pub peer: Peer,
    pub expired: Option<ExpiredIdentity>,
    pub keep_alive: KeepAlive,
    /// Where strangers come too.
    pub door: Option<Door>,
}

/// What a port that strangers come to learns of its callers.
#[derive(Clone)]
pub(super) struct Door {
    pub addr: SocketAddr,
    pub visit: Visit,
    pub refused: RefusedLog,
}

impl Door {
    fn learn(&self, headers: &HeaderMap) {
        match verdict::of_headers(headers) {
            // It has joined: what it showed was good.
            Verdict::Granted => self.visit.prove(None),
            Verdict::Refused(why) => self.refused.tell(self.addr.ip(), why),
            Verdict::Unknown => {}
        }
    }
}

/// The same for such a one.
pub(super) async fn serve_stream(
    router: Router,
    connected: Connected,
    clock: Arc<dyn Clock>,
    end: CancellationToken,
) {
    let Connected {
        stream,
        peer,
        expired,
        keep_alive,
        door,
    } = connected;
    let stream = HeardStream::new(stream, clock);
    let heard = stream.last_heard();
    let watched = heard.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        if let Some(expired) = expired {
            request.extensions_mut().insert(expired);
        }
        request.extensions_mut().insert(heard.clone());
        let answered = router.clone().oneshot(request.map(Body::new));
        let door = door.clone();
        async move {
            let answer = answered.await?;
            if let Some(door) = door.filter(|_| answer.status().is_success()) {
                door.learn(answer.headers());
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(CoarseTimer)
        .keep_alive_interval(Some(keep_alive.every))
        .keep_alive_timeout(PONG_TIMEOUT)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(RESET_STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let silent = silence::until_silent(&watched, keep_alive);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = end.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = silent => {
            tracing::debug!("a node that is silent is left");
            return;
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "the connection of a node broke");
    }
}

#[cfg(test)]
mod tests {
    use dhow_wire::grpc::Refusal;

    use super::*;
    use crate::clock::SystemClock;
    use crate::net::lobby::{Lobby, LobbyLimits};

    #[tokio::test]
    async fn who_is_refused_stays_a_guest_and_is_told_of() {
        let limits = LobbyLimits {
            guests: 8,
            per_address: 8,
            per_known: 1,
            callers: usize::MAX,
        };
        let lobby = Lobby::new(limits);
        let addr = "10.0.0.9:1".parse().unwrap();
        let door = Door {
            addr,
            visit: lobby.enter(addr).await.unwrap(),
            refused: RefusedLog::new(None, Arc::new(SystemClock::new())),
        };
        let answer = |refusal: Refusal| refusal.to_status().into_http::<Body>();
        door.learn(answer(Refusal::Busy).headers());
        assert_eq!((lobby.guests(), door.refused.told()), (1, 0));
        door.learn(answer(Refusal::Credential("no".into())).headers());
        assert_eq!((lobby.guests(), door.refused.told()), (1, 1));
        door.learn(&HeaderMap::new());
        assert_eq!((lobby.guests(), door.refused.told()), (0, 1), "it has joined");
    }
}
