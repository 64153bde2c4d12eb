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
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::access::AccessEntry;
use super::body::{Relayed, RequestBody, ResponseBody};
use super::exchange::ExchangeError;
use super::head::BadAnswer;
use super::headers::{self, Bad};
use super::pace::Pace;
use super::pool::{self, Answered, Link, Speaks};
use super::{Connection, HttpListener};
use super::{challenge, extended, sticky, tunnel};
use crate::proxy::backend::Lease;
use crate::proxy::canary::is_failed_grpc;
use crate::proxy::idle_clients::UnderWay;
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
/// How long a client may send nothing of a body that it has announced, where its endpoint has no `idle_timeout`. However
/// slow it is, it goes on as long as something comes.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why a client gets the proxy's own word instead of a backend's.
enum Failed {
    Bad(Bad),
    /// What the client sent as its body was broken, or broke off.
    Body,
    /// The client has sent nothing of its body for too long.
    Stalled,
    Connect(extended::Unserved),
    NoRoute {
        host: String,
        path: String,
    },
    /// Whoever calls may not.
    Forbidden,
    NoBackend,
    /// This node has as much under way as it can.
    Full,
    Lost,
    /// The replica has answered, and not in a way that can be passed on.
    Answer(Option<BadAnswer>),
    /// The replica took longer than its endpoint lets it.
    Late,
}

/// Where a request is to go.
struct Target {
    /// As the client named it, with its port.
    host: HeaderValue,
    uri: Uri,
    speaks: Speaks,
    /// The replica that its client had.
    sticky: Option<StickyTo>,
}

/// A request on its way.
struct Outgoing {
    target: Target,
    parts: Parts,
    body: RequestBody,
    /// It may be sent again where it is not known what became of it.
    may_replay: bool,
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
    let under_way = UnderWay::of(Arc::clone(&connection));
    let mut access = None;
    let answered = forward(&connection, request, &mut access).await;
    // Where a request is doubtful, so is where the next one begins.
    let is_doubtful = matches!(answered, Err(Failed::Bad(_) | Failed::Body | Failed::Stalled));
    let mut response = answered.unwrap_or_else(Failed::response);
    response.body_mut().pace = Pace::current();
    response.body_mut().under_way = Some(under_way);
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
    let HttpListener { limits, room, .. } = &connection.listener;
    let permit = match parts.version == Version::HTTP_2 {
        true => Some(limits.try_request(room).ok_or(Failed::Full)?),
        false => None,
    };
    let extended = extended::take(&mut parts).map_err(Failed::Connect)?;
    let host = headers::host(&parts).map_err(Failed::Bad)?;
    let (target_host, uri) = (host.clone(), parts.uri.clone());
    let name = name_of(&target_host);
    if let Some(answer) = challenge::answer(&parts, name, &connection.listener) {
        return Ok(answer);
    }
    let found = connection.listener.routes.borrow().find(name, uri.path());
    let Some(route) = found else {
        return Err(no_route(&target_host, &uri));
    };
    if let Some(port) = redirected_to(connection, &route) {
        return Ok(redirect(name, port, &uri));
    }
    if route.options.access_log {
        *access = Some(entry_of(connection, &route, name, &parts));
    }
    let upgrade = upgrade_of(extended, &parts, client);
    let protocol = upgrade.as_ref().map(|upgrade| &upgrade.protocol);
    let from = headers::From {
        peer: &connection.peer,
        scheme: &connection.scheme,
        at: connection.arrival.local,
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
    let target = Target {
        host: target_host,
        uri,
        speaks,
        sticky,
    };
    let outgoing = Outgoing::new(target, parts, body.into());
    let (mut response, mut lease, request) = outgoing.send(connection, Arc::clone(&route)).await?;
    lease.permit = permit;
    if let Some(entry) = access {
        entry.backend = Some(lease.backend.id.clone());
    }
    let is_tls = connection.scheme == Scheme::HTTPS;
    if let Some(cookie) = sticky::cookie(&route, sticky, &lease.backend.id, is_tls) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    let idle = route.options.idle_timeout.map(TimeSpan::to_std);
    let taken = Taken { lease, request, idle };
    relay(connection, response, taken, upgrade)
}

/// What a request asks to change to, in the words of HTTP/2 or of HTTP/1.1.
fn upgrade_of(extended: Option<HeaderValue>, parts: &Parts, client: OnUpgrade) -> Option<Upgrade> {
    let is_extended = extended.is_some();
    let protocol = extended.or_else(|| headers::upgrade(parts))?;
    Some(Upgrade {
        protocol,
        client,
        is_extended,
    })
}

/// The port of HTTPS to which requests are sent, once there is a certificate to show there.
fn redirected_to(connection: &Connection, route: &Route) -> Option<u16> {
    let is_secure = |ordered: &String| connection.listener.certificates.has(ordered);
    let has_certificate = route.ordered.as_ref().is_none_or(is_secure);
    route.redirect.filter(|_| has_certificate)
}

/// The line for the access log.
fn entry_of(connection: &Connection, route: &Route, name: &str, parts: &Parts) -> Box<AccessEntry> {
    let client = connection.peer.to_str().unwrap_or_default();
    let log = connection.listener.access_log.clone();
    Box::new(AccessEntry::new(log, &route.id, client, name, parts))
}

/// The host that a request is for, without its port.
fn name_of(host: &HeaderValue) -> &str {
    headers::without_port(host.to_str().unwrap_or_default())
}

fn no_route(host: &HeaderValue, uri: &Uri) -> Failed {
    Failed::NoRoute {
        host: name_of(host).to_owned(),
        path: uri.path().to_owned(),
    }
}

/// A backend that has taken a request.
struct Taken {
    lease: Lease,
    /// What may still be to be sent.
    request: RequestBody,
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
    response: Response<Answered>,
    taken: Taken,
    upgrade: Option<Upgrade>,
) -> Result<Response<ResponseBody>, Failed> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // A backend that changes without being asked speaks what nobody here understands.
        let upgrade = upgrade.ok_or(Failed::Answer(None))?;
        let protocol = response.headers().get(header::UPGRADE).cloned();
        let is_known = |protocol: &HeaderValue| protocol.to_str().is_ok_and(headers::may_change_to);
        if protocol.as_ref().is_some_and(|protocol| !is_known(protocol)) {
            return Err(Failed::Answer(None));
        }
        let (mut parts, answered) = response.into_parts();
        let Answered::One(answer) = answered else {
            return Err(Failed::Answer(None));
        };
        tunnel::spawn(
            connection.clone(),
            upgrade.client,
            answer.into_stream(),
            taken.lease,
            taken.idle,
        );
        let protocol = protocol.unwrap_or(upgrade.protocol);
        headers::to_client(
            &mut parts.headers,
            Some(&protocol).filter(|_| !upgrade.is_extended),
        );
        if upgrade.is_extended {
            extended::opened(&mut parts.status, &mut parts.headers);
        }
        return Ok(Response::from_parts(parts, ResponseBody::own(Bytes::new())));
    }
    // To the client it would be the beginning of a WebSocket.
    if upgrade.is_some_and(|upgrade| upgrade.is_extended) && response.status().is_success() {
        return Err(Failed::Answer(None));
    }
    let (mut parts, body) = response.into_parts();
    headers::to_client(&mut parts.headers, None);
    let relayed = Relayed::new(body, taken.request, taken.lease, taken.idle);
    Ok(Response::from_parts(parts, ResponseBody::relayed(relayed)))
}

impl Outgoing {
    fn new(target: Target, parts: Parts, body: RequestBody) -> Self {
        let is_empty = matches!(body, RequestBody::Empty);
        Self {
            target,
            may_replay: is_empty && parts.method.is_idempotent(),
            parts,
            body,
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
    ) -> Result<(Response<Answered>, Lease, RequestBody), Failed> {
        let sent = self.answered(connection, route).await;
        let call = self.call.take();
        match sent {
            Ok((response, mut lease)) => {
                if let Some(call) = &call {
                    call.answered();
                    if response.status().is_server_error() {
                        call.failed();
                    }
                }
                lease.call = call;
                Ok((response, lease, self.body))
            }
            Err(failed) => {
                let is_ours = matches!(
                    failed,
                    Failed::NoBackend | Failed::Lost | Failed::Answer(_) | Failed::Late
                );
                if let Some(call) = call.filter(|_| is_ours) {
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
            self.body.count_for(&route.meter);
        }
        // gRPC may be silent for as long as it likes: a call is also a stream of messages that come when there are some.
        let idle = route.options.idle_timeout.map(TimeSpan::to_std);
        self.body.wait_for(match self.target.speaks {
            Speaks::One => Some(idle.unwrap_or(BODY_TIMEOUT)),
            Speaks::Two => None,
        });
    }

    async fn answered(
        &mut self,
        connection: &Connection,
        mut route: Arc<Route>,
    ) -> Result<(Response<Answered>, Lease), Failed> {
        let mut routes = None;
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
            let routes = routes.get_or_insert_with(|| connection.listener.routes.clone());
            // Whether there is a new table or not: look again. A sender that is gone means that the
            // listener ends, and what it had stays.
            if let Ok(Err(_)) = tokio::time::timeout_at(look_again, routes.changed()).await {
                tokio::time::sleep_until(look_again).await;
            }
            self.tried.clear();
            let Target { host, uri, .. } = &self.target;
            let found = routes.borrow_and_update().find(name_of(host), uri.path());
            route = found.ok_or_else(|| no_route(host, uri))?;
        }
    }

    /// Tries one backend after the other; `None` when none of them took the request.
    async fn try_route(
        &mut self,
        route: &Route,
        origin: &Origin,
    ) -> Result<Option<(Response<Answered>, Lease)>, Failed> {
        let timeout = route.options.request_timeout.map(TimeSpan::to_std);
        while let Some(lease) = route.pick_for(self.target.sticky, &self.tried) {
            let idle_max = match self.may_replay {
                true => pool::IDLE_TIMEOUT,
                false => pool::FRESH_TIMEOUT,
            };
            let speaks = self.target.speaks;
            let Ok((link, reused)) = Link::open(&lease.backend, origin, speaks, idle_max).await else {
                lease.backend.refused();
                lease.fails();
                self.tried.add(&lease.backend);
                continue;
            };
            let sending = link.send(&self.parts, &mut self.body);
            let sent = match timeout {
                Some(timeout) => tokio::time::timeout(timeout, sending).await,
                None => Ok(sending.await),
            };
            let sent = sent.map_err(|_| {
                lease.fails();
                Failed::Late
            })?;
            match sent {
                Ok(response) => {
                    lease.backend.accepted();
                    if response.status().is_server_error() || is_failed_grpc(response.headers()) {
                        lease.fails();
                    }
                    return Ok(Some((response, lease)));
                }
                Err(error) => self.failed(&error, &lease, reused)?,
            }
        }
        Ok(None)
    }

    /// Lets the request be sent once more, where that is safe.
    fn failed(&mut self, error: &ExchangeError, lease: &Lease, reused: bool) -> Result<(), Failed> {
        match error {
            ExchangeError::Lost | ExchangeError::Bad(_) => lease.fails(),
            ExchangeError::Unsent if !reused => lease.fails(),
            ExchangeError::Unsent | ExchangeError::Body | ExchangeError::Stalled => lease.says_nothing(),
        }
        match error {
            ExchangeError::Unsent => {
                // An old connection says nothing about the backend; a new one that is closed at once does.
                if !reused {
                    lease.backend.refused();
                    self.tried.add(&lease.backend);
                }
                Ok(())
            }
            ExchangeError::Lost if self.may_replay && self.replays < REPLAYS_MAX => {
                self.replays += 1;
                self.tried.add(&lease.backend);
                Ok(())
            }
            ExchangeError::Body => Err(Failed::Body),
            ExchangeError::Stalled => Err(Failed::Stalled),
            ExchangeError::Lost => Err(Failed::Lost),
            ExchangeError::Bad(why) => Err(Failed::Answer(*why)),
        }
    }
}

impl Failed {
    fn response(self) -> Response<ResponseBody> {
        let (status, text) = self.words();
        let mut response = Response::new(ResponseBody::own(text));
        *response.status_mut() = status;
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, plain);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }

    fn words(self) -> (StatusCode, String) {
        match self {
            Self::Bad(Bad::NoHost) => (StatusCode::BAD_REQUEST, "the request names no host\n".to_owned()),
            Self::Bad(Bad::TwoHosts) => (
                StatusCode::BAD_REQUEST,
                "the request names two hosts\n".to_owned(),
            ),
            Self::Bad(Bad::OddHost) => (
                StatusCode::BAD_REQUEST,
                "the request's host is no name and no address\n".to_owned(),
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
            Self::Stalled => (
                StatusCode::REQUEST_TIMEOUT,
                "nothing more of the request's body has come\n".to_owned(),
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
            Self::Full => (
                StatusCode::SERVICE_UNAVAILABLE,
                "this node has no room for more requests now\n".to_owned(),
            ),
            Self::Lost => (
                StatusCode::BAD_GATEWAY,
                "the replica went away before it had answered\n".to_owned(),
            ),
            Self::Answer(Some(why)) => (StatusCode::BAD_GATEWAY, format!("{why}\n")),
            Self::Answer(None) => (
                StatusCode::BAD_GATEWAY,
                "the replica has answered something that nobody asked for\n".to_owned(),
            ),
            Self::Late => (
                StatusCode::GATEWAY_TIMEOUT,
                "the replica did not answer in time\n".to_owned(),
            ),
        }
    }
}
