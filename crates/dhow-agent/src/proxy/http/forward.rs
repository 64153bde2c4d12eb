//! A request that hyper has read: finds its route, has it tried on backends, and hands the answer on.

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

use super::access::{AccessEntry, AskedFor};
use super::attempts::{Asked, Attempts};
use super::body::{Relayed, RequestBody, ResponseBody};
use super::exchange::ExchangeError;
use super::failed::Failed;
use super::headers::{self, Bad};
use super::pace::Pace;
use super::pool::{Answered, Link, Speaks};
use super::{Connection, HttpListener};
use super::{challenge, extended, sticky, tunnel};
use crate::proxy::backend::Lease;
use crate::proxy::canary::is_failed_grpc;
use crate::proxy::idle_clients::UnderWay;
use crate::proxy::routes::{Route, StickyTo};

/// How long a client may send nothing of a body that it has announced, where its endpoint has no `idle_timeout`. However
/// slow it is, it goes on as long as something comes.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);

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
        return Err(Failed::no_route(name, uri.path()));
    };
    if let Some(port) = redirected_to(connection, &route) {
        return Ok(redirect(name, port, &uri));
    }
    if route.options.access_log {
        *access = Some(entry_of(connection, &route, name, &parts));
    }
    let upgrade = upgrade_of(extended, &parts, client);
    let protocol = upgrade.as_ref().map(|upgrade| &upgrade.protocol);
    let speaks = headers::speaks(&parts);
    for_backend(connection, &route, &mut parts, host, protocol).map_err(Failed::Bad)?;
    if speaks == Speaks::Two {
        headers::to_two(&mut parts).map_err(Failed::Bad)?;
    }
    parts.extensions.clear();
    let cookies = parts.headers.get_all(header::COOKIE).iter();
    let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
    let sticky = sticky::wanted(&route, connection.arrival.peer.ip(), cookies);
    let target = Target {
        host: target_host,
        uri,
        speaks,
        sticky,
    };
    let body = RequestBody::from(body);
    let may_replay = matches!(body, RequestBody::Empty) && parts.method.is_idempotent();
    let mut outgoing = Outgoing { target, parts, body };
    let attempts = Attempts::new(connection, may_replay);
    let (mut response, mut lease) = attempts.send(Arc::clone(&route), &mut outgoing).await?;
    lease.permit = permit;
    if let Some(entry) = access {
        entry.backend = Some(lease.backend.id.clone());
    }
    let is_tls = connection.scheme == Scheme::HTTPS;
    if let Some(cookie) = sticky::cookie(&route, sticky, &lease.backend.id, is_tls) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    let idle = route.options.idle_timeout.map(TimeSpan::to_std);
    let taken = Taken {
        lease,
        request: outgoing.body,
        idle,
    };
    relay(connection, response, taken, upgrade)
}

/// Turns a client's request into that of the backends of a route.
fn for_backend(
    connection: &Connection,
    route: &Route,
    parts: &mut Parts,
    host: HeaderValue,
    upgrade: Option<&HeaderValue>,
) -> Result<(), Bad> {
    let from = headers::From {
        peer: &connection.peer,
        scheme: &connection.scheme,
        at: connection.arrival.local,
        is_believed: connection.is_believed(route),
    };
    headers::to_backend(parts, host, &from, upgrade)?;
    match route.prefix().filter(|_| route.options.strip_prefix) {
        Some(prefix) => headers::strip_prefix(parts, prefix),
        None => Ok(()),
    }
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
pub(super) fn redirected_to(connection: &Connection, route: &Route) -> Option<u16> {
    let is_secure = |ordered: &String| connection.listener.certificates.has(ordered);
    let has_certificate = route.ordered.as_ref().is_none_or(is_secure);
    route.redirect.filter(|_| has_certificate)
}

/// The line for the access log.
fn entry_of(connection: &Connection, route: &Route, name: &str, parts: &Parts) -> Box<AccessEntry> {
    let target = parts.uri.to_string();
    let version = match parts.version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    let asked = AskedFor {
        host: name,
        method: parts.method.as_str(),
        target: &target,
        version,
    };
    Box::new(AccessEntry::new(connection, route, &asked))
}

/// The host that a request is for, without its port.
fn name_of(host: &HeaderValue) -> &str {
    headers::without_port(host.to_str().unwrap_or_default())
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

impl Asked for Outgoing {
    type Answer = Response<Answered>;

    fn host(&self) -> &str {
        name_of(&self.target.host)
    }

    fn path(&self) -> &str {
        self.target.uri.path()
    }

    fn speaks(&self) -> Speaks {
        self.target.speaks
    }

    fn sticky(&self) -> Option<StickyTo> {
        self.target.sticky
    }

    fn begin(&mut self, route: &Route, is_first: bool) {
        if is_first {
            self.body.count_for(&route.meter);
        }
        // gRPC may be silent for as long as it likes: a call is also a stream of messages that come when there are some.
        let idle = route.options.idle_timeout.map(TimeSpan::to_std);
        self.body.wait_for(match self.target.speaks {
            Speaks::One => Some(idle.unwrap_or(BODY_TIMEOUT)),
            Speaks::Two => None,
        });
    }

    async fn ask(&mut self, link: Link) -> Result<Response<Answered>, ExchangeError> {
        link.send(&self.parts, &mut self.body).await
    }

    fn status(answer: &Response<Answered>) -> StatusCode {
        answer.status()
    }

    fn has_failed(answer: &Response<Answered>) -> bool {
        answer.status().is_server_error() || is_failed_grpc(answer.headers())
    }
}
