//! A usual request made ready for its replica: its route is found, and the bytes are written that are sent.

use std::sync::Arc;

use super::request::UsualRequest;
use crate::proxy::http::access::{AccessEntry, AskedFor};
use crate::proxy::http::failed::Failed;
use crate::proxy::http::{Connection, challenge, forward, headers, sticky};
use crate::proxy::routes::{Route, StickyTo};

/// A request that can be sent.
pub struct Ready {
    pub route: Result<Arc<Route>, Failed>,
    pub sticky: Option<StickyTo>,
    pub body_bytes: usize,
    pub is_head: bool,
    pub is_kept: bool,
    pub may_replay: bool,
    pub access: Option<Box<AccessEntry>>,
}

/// What is kept of a request until it is answered, in memory that the next one uses again.
#[derive(Default)]
pub struct AskedBytes {
    /// All that a replica is sent.
    pub request: Vec<u8>,
    /// Without a port.
    pub host: String,
    pub path: String,
}

impl Ready {
    /// `None` where the proxy has an answer of its own, which hyper gives.
    pub fn make(
        connection: &Connection,
        request: &UsualRequest<'_, '_>,
        body: &[u8],
        asked: &mut AskedBytes,
    ) -> Option<Self> {
        let (host, path) = (headers::without_port(request.host), request.path());
        if path.starts_with(challenge::PREFIX) {
            return None;
        }
        let found = connection.listener.routes.borrow().find(host, path);
        let ready = |route, sticky, access| Self {
            route,
            sticky,
            body_bytes: body.len(),
            is_head: request.method == "HEAD",
            is_kept: request.is_kept,
            may_replay: request.may_replay(),
            access,
        };
        let Some(route) = found else {
            return Some(ready(Err(Failed::no_route(host, path)), None, None));
        };
        if forward::redirected_to(connection, &route).is_some() {
            return None;
        }
        replace(&mut asked.host, host);
        replace(&mut asked.path, path);
        asked.request.clear();
        write(connection, request, &route, &mut asked.request);
        asked.request.extend_from_slice(body);
        let sticky = sticky::wanted(&route, connection.arrival.peer.ip(), request.cookies());
        let access = entry_of(connection, &route, host, request);
        Some(ready(Ok(route), sticky, access))
    }
}

fn replace(text: &mut String, now: &str) {
    text.clear();
    text.push_str(now);
}

/// Writes the head for the replica.
fn write(connection: &Connection, request: &UsualRequest<'_, '_>, route: &Route, out: &mut Vec<u8>) {
    let from = headers::From {
        peer: &connection.peer,
        scheme: &connection.scheme,
        at: connection.arrival.local,
        is_believed: connection.is_believed(route),
    };
    request.write(&from, route.prefix().filter(|_| route.options.strip_prefix), out);
}

/// The line for the access log, where there is to be one.
fn entry_of(
    connection: &Connection,
    route: &Route,
    host: &str,
    request: &UsualRequest<'_, '_>,
) -> Option<Box<AccessEntry>> {
    let asked = AskedFor {
        host,
        method: request.method,
        target: request.target,
        version: "HTTP/1.1",
    };
    let is_noted = route.options.access_log;
    is_noted.then(|| Box::new(AccessEntry::new(connection, route, &asked)))
}
