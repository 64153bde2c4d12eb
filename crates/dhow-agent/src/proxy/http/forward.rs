//! One request: finds its route, chooses a backend, sends it, and chooses again where that is safe.
//!
//! Safe is: nothing of the request was sent (the connection was refused, or had been closed while idle), for
//! every request; and the backend went away before it answered, for requests without a body that may be
//! repeated by their method. All else is the client's to decide, with a 502.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::time::Instant;

use super::Connection;
use super::body::{Relayed, RequestBody, ResponseBody};
use super::headers::{self, Bad};
use super::pool::{self, PooledConnection};
use super::tunnel;
use crate::proxy::backend::Lease;
use crate::proxy::mesh::Origin;
use crate::proxy::meters::Call;
use crate::proxy::routes::{Route, Tried};

/// How long a request waits for a backend when there is none: a replica that is just being replaced.
pub const BACKEND_WAIT: Duration = Duration::from_secs(2);
/// How often it looks again meanwhile; a new table wakes it at once.
pub const BACKEND_LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How often a request that was sent is sent again. A request that kills whoever serves it must not go round
/// all of them.
const REPLAYS_MAX: u32 = 2;
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why a client gets the proxy's own word instead of a backend's.
enum Failed {
    Bad(Bad),
    /// What the client sent as its body was broken, or broke off.
    Body,
    Method,
    NoRoute {
        host: String,
        path: String,
    },
    /// Whoever calls may not.
    Forbidden,
    NoBackend,
    Lost,
}

/// A request on its way.
struct Outgoing {
    host: String,
    path: String,
    request: Option<Request<RequestBody>>,
    /// What it takes to send it again.
    replay: Option<Parts>,
    replays: u32,
    tried: Tried,
    deadline: Instant,
    /// Counted for the endpoint whose route was found first.
    call: Option<Call>,
}

/// What the client and the backend agreed to change to.
struct Upgrade {
    protocol: HeaderValue,
    client: OnUpgrade,
}

pub(super) async fn answer(
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let version = request.version();
    let mut response = match forward(&connection, request).await {
        Ok(response) => response,
        Err(failed) => failed.response(),
    };
    *response.version_mut() = Version::HTTP_11;
    if connection.is_ending() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        if version <= Version::HTTP_11 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        connection.tell();
    }
    Ok(response)
}

async fn forward(
    connection: &Arc<Connection>,
    mut request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Failed> {
    if request.method() == Method::CONNECT {
        return Err(Failed::Method);
    }
    let client = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let host = headers::host(&parts).map_err(Failed::Bad)?;
    let name = headers::without_port(host.to_str().unwrap_or_default()).to_owned();
    let path = parts.uri.path().to_owned();
    let upgrade = headers::upgrade(&parts).map(|protocol| Upgrade { protocol, client });
    let protocol = upgrade.as_ref().map(|upgrade| &upgrade.protocol);
    headers::to_backend(&mut parts, host, &connection.peer, protocol).map_err(Failed::Bad)?;
    parts.extensions.clear();
    let outgoing = Outgoing::new(name, path, parts, body.into());
    let (response, lease, pooled) = outgoing.send(connection).await?;
    relay(connection, response, lease, pooled, upgrade)
}

/// Hands the backend's answer on.
fn relay(
    connection: &Arc<Connection>,
    mut response: Response<Incoming>,
    lease: Lease,
    pooled: PooledConnection,
    upgrade: Option<Upgrade>,
) -> Result<Response<ResponseBody>, Failed> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // A backend that changes without being asked speaks what nobody here understands.
        let upgrade = upgrade.ok_or(Failed::Lost)?;
        let protocol = response.headers().get(header::UPGRADE).cloned();
        let is_known = |protocol: &HeaderValue| protocol.to_str().is_ok_and(headers::may_change_to);
        if protocol.as_ref().is_some_and(|protocol| !is_known(protocol)) {
            return Err(Failed::Lost);
        }
        let backend = hyper::upgrade::on(&mut response);
        tunnel::spawn(connection.clone(), upgrade.client, backend, lease);
        let (mut parts, _) = response.into_parts();
        headers::to_client(&mut parts.headers, Some(&protocol.unwrap_or(upgrade.protocol)));
        return Ok(Response::from_parts(parts, ResponseBody::Own(Full::default())));
    }
    let (mut parts, body) = response.into_parts();
    headers::to_client(&mut parts.headers, None);
    let relayed = Relayed::new(body, lease, pooled);
    Ok(Response::from_parts(parts, ResponseBody::Relayed(relayed)))
}

impl Outgoing {
    fn new(host: String, path: String, parts: Parts, body: RequestBody) -> Self {
        let is_empty = matches!(body, RequestBody::Empty);
        let replay = (is_empty && parts.method.is_idempotent()).then(|| parts.clone());
        Self {
            host,
            path,
            request: Some(Request::from_parts(parts, body)),
            replay,
            replays: 0,
            tried: Tried::default(),
            deadline: Instant::now() + BACKEND_WAIT,
            call: None,
        }
    }

    /// Sends it and counts what becomes of it.
    async fn send(
        mut self,
        connection: &Connection,
    ) -> Result<(Response<Incoming>, Lease, PooledConnection), Failed> {
        let sent = self.answered(connection).await;
        let call = self.call.take();
        match sent {
            Ok((response, mut lease, pooled)) => {
                if let Some(call) = &call {
                    call.answered();
                    if response.status().is_server_error() {
                        call.failed();
                    }
                }
                lease.call = call;
                Ok((response, lease, pooled))
            }
            Err(failed) => {
                if let (Some(call), Failed::NoBackend | Failed::Lost) = (&call, &failed) {
                    call.failed();
                }
                Err(failed)
            }
        }
    }

    /// A call of this endpoint begins, unless it has begun before.
    fn begin(&mut self, route: &Route) {
        if self.call.is_none() {
            self.call = Some(Call::begin(&route.meter));
            if let Some(request) = &mut self.request {
                request.body_mut().count_for(&route.meter);
            }
        }
    }

    async fn answered(
        &mut self,
        connection: &Connection,
    ) -> Result<(Response<Incoming>, Lease, PooledConnection), Failed> {
        let mut routes = connection.listener.routes.clone();
        loop {
            let route = routes.borrow_and_update().find(&self.host, &self.path);
            let Some(route) = route else {
                let (host, path) = (std::mem::take(&mut self.host), std::mem::take(&mut self.path));
                return Err(Failed::NoRoute { host, path });
            };
            if !connection.may_call(&route) {
                return Err(Failed::Forbidden);
            }
            self.begin(&route);
            if let Some(done) = self.try_route(&route, &connection.origin(&route)).await? {
                return Ok(done);
            }
            let now = Instant::now();
            if now >= self.deadline {
                return Err(Failed::NoBackend);
            }
            let look_again = (now + BACKEND_LOOK_INTERVAL).min(self.deadline);
            // Whether there is a new table or not: look again. A sender that is gone means that the
            // listener ends, and what it had stays.
            if let Ok(Err(_)) = tokio::time::timeout_at(look_again, routes.changed()).await {
                tokio::time::sleep_until(look_again).await;
            }
            self.tried.clear();
        }
    }

    /// Tries one backend after the other; `None` when none of them took the request.
    async fn try_route(
        &mut self,
        route: &Route,
        origin: &Origin,
    ) -> Result<Option<(Response<Incoming>, Lease, PooledConnection)>, Failed> {
        while let Some(lease) = route.pick(&self.tried) {
            let idle_max = match self.replay {
                Some(_) => pool::IDLE_TIMEOUT,
                None => pool::FRESH_TIMEOUT,
            };
            let mut pooled = match lease.backend.pool.take(idle_max) {
                Some(pooled) => pooled,
                None => match pool::open(&lease.backend, origin).await {
                    Ok(pooled) => pooled,
                    Err(_) => {
                        lease.backend.refused();
                        self.tried.add(&lease.backend);
                        continue;
                    }
                },
            };
            let Some(request) = self.request.take() else {
                return Err(Failed::Lost);
            };
            match pooled.sender.try_send_request(request).await {
                Ok(response) => {
                    lease.backend.accepted();
                    return Ok(Some((response, lease, pooled)));
                }
                Err(error) => self.failed(error, &lease, pooled.reused)?,
            }
        }
        Ok(None)
    }

    /// Makes the request ready to be sent once more, where that is safe.
    fn failed(
        &mut self,
        mut error: TrySendError<Request<RequestBody>>,
        lease: &Lease,
        reused: bool,
    ) -> Result<(), Failed> {
        if let Some(unsent) = error.take_message() {
            self.request = Some(unsent);
            // An old connection says nothing about the backend; a new one that is closed at once does.
            if !reused {
                lease.backend.refused();
                self.tried.add(&lease.backend);
            }
            return Ok(());
        }
        let error = error.into_error();
        if error.is_user() {
            return Err(Failed::Body);
        }
        let is_lost =
            error.is_incomplete_message() || error.is_canceled() || error.is_closed() || is_io(&error);
        match &self.replay {
            Some(parts) if is_lost && self.replays < REPLAYS_MAX => {
                self.request = Some(Request::from_parts(parts.clone(), RequestBody::Empty));
                self.replays += 1;
                self.tried.add(&lease.backend);
                Ok(())
            }
            Some(_) | None => Err(Failed::Lost),
        }
    }
}

fn is_io(error: &hyper::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
}

impl Failed {
    fn response(self) -> Response<ResponseBody> {
        let (status, text) = match self {
            Self::Bad(Bad::NoHost) => (StatusCode::BAD_REQUEST, "the request names no host\n".to_owned()),
            Self::Bad(Bad::TwoHosts) => (
                StatusCode::BAD_REQUEST,
                "the request names two hosts\n".to_owned(),
            ),
            Self::Bad(Bad::NoPath) => (StatusCode::BAD_REQUEST, "the request names no path\n".to_owned()),
            Self::Bad(Bad::Coding) => (
                StatusCode::NOT_IMPLEMENTED,
                "no transfer coding but chunked is known here\n".to_owned(),
            ),
            Self::Body => (
                StatusCode::BAD_REQUEST,
                "the request's body is broken\n".to_owned(),
            ),
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "this is no forward proxy: CONNECT is not served\n".to_owned(),
            ),
            Self::NoRoute { host, path } => (
                StatusCode::NOT_FOUND,
                format!("no endpoint takes {path} on host {host:?}\n"),
            ),
            Self::Forbidden => (
                StatusCode::FORBIDDEN,
                "this endpoint does not let you call: its `expose` and `allow` say who may\n".to_owned(),
            ),
            Self::NoBackend => (
                StatusCode::SERVICE_UNAVAILABLE,
                "no replica takes requests now\n".to_owned(),
            ),
            Self::Lost => (
                StatusCode::BAD_GATEWAY,
                "the replica went away before it had answered\n".to_owned(),
            ),
        };
        let mut response = Response::new(ResponseBody::Own(Full::new(Bytes::from(text))));
        *response.status_mut() = status;
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, plain);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}
