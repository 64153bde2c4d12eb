//! One request: finds its route, chooses a backend, sends it, and chooses again where that is safe.
//!
//! Safe is: nothing of the request was sent (the connection was refused, or had been closed while idle), for
//! every request; and the backend went away before it answered, for requests without a body that may be
//! repeated by their method. All else is the client's to decide, with a 502.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use dhow_core::spec::{SHARED_HTTPS_PORT, TimeSpan};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::Connection;
use super::access::AccessEntry;
use super::body::{Relayed, RequestBody, ResponseBody};
use super::headers::{self, Bad};
use super::pool::{self, Link, Speaks};
use super::{challenge, extended, sticky, tunnel};
use crate::proxy::backend::Lease;
use crate::proxy::mesh::Origin;
use crate::proxy::meters::Call;
use crate::proxy::routes::{Route, StickyTo, Tried};

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
    Connect(extended::Unserved),
    NoRoute {
        host: String,
        path: String,
    },
    /// Whoever calls may not.
    Forbidden,
    NoBackend,
    Lost,
    /// The replica took longer than its endpoint lets it.
    Late,
}

/// Where a request is to go.
struct Target {
    host: String,
    path: String,
    speaks: Speaks,
    /// The replica that its client had.
    sticky: Option<StickyTo>,
}

/// A request on its way.
struct Outgoing {
    target: Target,
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
    /// The client asked in the words of HTTP/2.
    is_extended: bool,
}

pub(super) async fn answer(
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let version = request.version();
    connection.begun.fetch_add(1, Ordering::Relaxed);
    let mut access = None;
    let answered = forward(&connection, request, &mut access).await;
    // Where a request is doubtful, so is where the next one begins.
    let is_doubtful = matches!(answered, Err(Failed::Bad(_) | Failed::Body));
    let mut response = answered.unwrap_or_else(Failed::response);
    if is_doubtful && version <= Version::HTTP_11 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    if let Some(mut entry) = access {
        entry.status = response.status();
        response.body_mut().access = Some(entry);
    }
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
    access: &mut Option<Box<AccessEntry>>,
) -> Result<Response<ResponseBody>, Failed> {
    let client = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let extended = extended::take(&mut parts).map_err(Failed::Connect)?;
    let host = headers::host(&parts).map_err(Failed::Bad)?;
    let name = headers::without_port(host.to_str().unwrap_or_default()).to_owned();
    let path = parts.uri.path().to_owned();
    if let Some(answer) = challenge::answer(&parts, &name, &connection.listener) {
        return Ok(answer);
    }
    let found = connection.listener.routes.borrow().find(&name, &path);
    let Some(route) = found else {
        return Err(Failed::NoRoute { host: name, path });
    };
    let is_secure = |ordered: &String| connection.listener.certificates.has(ordered);
    if let Some(port) = route.redirect.filter(|_| route.ordered.as_ref().is_none_or(is_secure)) {
        return Ok(redirect(&name, port, &parts.uri));
    }
    if route.options.access_log {
        let client = connection.peer.to_str().unwrap_or_default();
        let log = connection.listener.access_log.clone();
        *access = Some(Box::new(AccessEntry::new(log, &route.id, client, &name, &parts)));
    }
    let is_extended = extended.is_some();
    let upgrade = extended.or_else(|| headers::upgrade(&parts)).map(|protocol| Upgrade {
        protocol,
        client,
        is_extended,
    });
    let protocol = upgrade.as_ref().map(|upgrade| &upgrade.protocol);
    let from = headers::From {
        peer: &connection.peer,
        scheme: &connection.scheme,
        is_believed: connection.is_believed(&route),
    };
    let speaks = headers::speaks(&parts);
    headers::to_backend(&mut parts, host, &from, protocol).map_err(Failed::Bad)?;
    if let Some(prefix) = route.prefix().filter(|_| route.options.strip_prefix) {
        headers::strip_prefix(&mut parts, prefix).map_err(Failed::Bad)?;
    }
    if speaks == Speaks::Two {
        headers::to_two(&mut parts).map_err(Failed::Bad)?;
    }
    parts.extensions.clear();
    let sticky = sticky::wanted(&route, connection.arrival.peer.ip(), &parts.headers);
    let outgoing = Outgoing::new(
        Target {
            host: name,
            path,
            speaks,
            sticky,
        },
        Request::from_parts(parts, body.into()),
    );
    let (mut response, lease, link) = outgoing.send(connection, Arc::clone(&route)).await?;
    if let Some(entry) = access {
        entry.backend = Some(lease.backend.id.clone());
    }
    let is_tls = connection.scheme == Scheme::HTTPS;
    if let Some(cookie) = sticky::cookie(&route, sticky, &lease.backend.id, is_tls) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    let idle = route.options.idle_timeout.map(TimeSpan::to_std);
    relay(connection, response, Taken { lease, link, idle }, upgrade)
}

/// A backend that has taken a request.
struct Taken {
    lease: Lease,
    link: Link,
    /// How long it may send nothing.
    idle: Option<Duration>,
}

/// Sends a client to HTTPS, for good and with what it wanted to send.
fn redirect(host: &str, port: u16, uri: &Uri) -> Response<ResponseBody> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let location = match port {
        SHARED_HTTPS_PORT => format!("https://{host}{path}"),
        port => format!("https://{host}:{port}{path}"),
    };
    let mut response = Response::new(ResponseBody::own(Bytes::new()));
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Hands the backend's answer on.
fn relay(
    connection: &Arc<Connection>,
    mut response: Response<Incoming>,
    taken: Taken,
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
        tunnel::spawn(
            connection.clone(),
            upgrade.client,
            backend,
            taken.lease,
            taken.idle,
        );
        let (mut parts, _) = response.into_parts();
        let protocol = protocol.unwrap_or(upgrade.protocol);
        headers::to_client(&mut parts.headers, Some(&protocol).filter(|_| !upgrade.is_extended));
        if upgrade.is_extended {
            extended::opened(&mut parts.status, &mut parts.headers);
        }
        return Ok(Response::from_parts(parts, ResponseBody::own(Bytes::new())));
    }
    // To the client it would be the beginning of a WebSocket.
    if upgrade.is_some_and(|upgrade| upgrade.is_extended) && response.status().is_success() {
        return Err(Failed::Lost);
    }
    let (mut parts, body) = response.into_parts();
    headers::to_client(&mut parts.headers, None);
    let relayed = Relayed::new(body, taken.lease, taken.link, taken.idle);
    Ok(Response::from_parts(parts, ResponseBody::relayed(relayed)))
}

impl Outgoing {
    fn new(target: Target, request: Request<RequestBody>) -> Self {
        let (parts, body) = request.into_parts();
        let is_empty = matches!(body, RequestBody::Empty);
        let replay = (is_empty && parts.method.is_idempotent()).then(|| parts.clone());
        Self {
            target,
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
        route: Arc<Route>,
    ) -> Result<(Response<Incoming>, Lease, Link), Failed> {
        let sent = self.answered(connection, route).await;
        let call = self.call.take();
        match sent {
            Ok((response, mut lease, link)) => {
                if let Some(call) = &call {
                    call.answered();
                    if response.status().is_server_error() {
                        call.failed();
                    }
                }
                lease.call = call;
                Ok((response, lease, link))
            }
            Err(failed) => {
                if let (Some(call), Failed::NoBackend | Failed::Lost | Failed::Late) = (&call, &failed) {
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
        mut route: Arc<Route>,
    ) -> Result<(Response<Incoming>, Lease, Link), Failed> {
        let mut routes = connection.listener.routes.clone();
        loop {
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
            let Target { host, path, .. } = &self.target;
            let found = routes.borrow_and_update().find(host, path);
            let Some(found) = found else {
                let target = &mut self.target;
                let (host, path) = (std::mem::take(&mut target.host), std::mem::take(&mut target.path));
                return Err(Failed::NoRoute { host, path });
            };
            route = found;
        }
    }

    /// Tries one backend after the other; `None` when none of them took the request.
    async fn try_route(
        &mut self,
        route: &Route,
        origin: &Origin,
    ) -> Result<Option<(Response<Incoming>, Lease, Link)>, Failed> {
        let timeout = route.options.request_timeout.map(TimeSpan::to_std);
        while let Some(lease) = route.pick_for(self.target.sticky, &self.tried) {
            let idle_max = match self.replay {
                Some(_) => pool::IDLE_TIMEOUT,
                None => pool::FRESH_TIMEOUT,
            };
            let speaks = self.target.speaks;
            let Ok((mut link, reused)) = Link::open(&lease.backend, origin, speaks, idle_max).await else {
                lease.backend.refused();
                self.tried.add(&lease.backend);
                continue;
            };
            let Some(request) = self.request.take() else {
                return Err(Failed::Lost);
            };
            let sent = match timeout {
                Some(timeout) => tokio::time::timeout(timeout, link.send(request)).await,
                None => Ok(link.send(request).await),
            };
            match sent.map_err(|_| Failed::Late)? {
                Ok(response) => {
                    lease.backend.accepted();
                    return Ok(Some((response, lease, link)));
                }
                Err(error) => self.failed(error, &lease, reused)?,
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
            Self::Connect(extended::Unserved::Connect) => (
                StatusCode::METHOD_NOT_ALLOWED,
                "this is no forward proxy: CONNECT is not served\n".to_owned(),
            ),
            Self::Connect(extended::Unserved::Protocol) => (
                StatusCode::NOT_IMPLEMENTED,
                "no protocol but websocket is opened by CONNECT here\n".to_owned(),
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
            Self::Late => (
                StatusCode::GATEWAY_TIMEOUT,
                "the replica did not answer in time\n".to_owned(),
            ),
        };
        let mut response = Response::new(ResponseBody::own(text));
        *response.status_mut() = status;
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, plain);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}
