//! WebSocket over HTTP/2 (RFC 8441): a client opens a stream with an extended CONNECT, and the replica, which speaks
//! HTTP/1.1, gets the request to change protocols that stands for it.

use hyper::ext::Protocol;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};

const WEBSOCKET: &str = "websocket";
const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
const ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");

/// A CONNECT that is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// It asks for a connection to somewhere else.
    Connect,
    /// It asks for another protocol.
    Protocol,
}

/// Makes a request of an extended CONNECT one that HTTP/1.1 has, and gives the protocol that it asks for; none for every
/// other request.
pub fn take(parts: &mut Parts) -> Result<Option<HeaderValue>, Unserved> {
    if parts.method != Method::CONNECT {
        return Ok(None);
    }
    let protocol = parts.extensions.get::<Protocol>().ok_or(Unserved::Connect)?;
    if !protocol.as_str().eq_ignore_ascii_case(WEBSOCKET) {
        return Err(Unserved::Protocol);
    }
    parts.method = Method::GET;
    parts.headers.insert(KEY, key());
    Ok(Some(HeaderValue::from_static(WEBSOCKET)))
}

/// What the client is told of a replica that has changed protocols: its stream carries them from now on.
pub fn opened(status: &mut StatusCode, headers: &mut HeaderMap) {
    *status = StatusCode::OK;
    headers.remove(ACCEPT);
}

/// Sixteen bytes of chance in base64, by which HTTP/1.1 tells a WebSocket from something remembered.
fn key() -> HeaderValue {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(rand::random::<[u8; 16]>());
    // Base64 has nothing that a header cannot have.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAA=="))
}
