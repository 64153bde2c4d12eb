//! What an ACME server is answered that asks whether a host is this cluster's (HTTP-01).
//!
//! The answer is made of the token that is asked for and the thumbprint of the account's key, so that every node gives it
//! and nobody has to know of the order. It proves the host to orders of that account alone.

use dhow_core::acme;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::HttpListener;
use super::body::ResponseBody;

/// Where they ask.
pub const PREFIX: &str = "/.well-known/acme-challenge/";

/// The answer to a request that is one of an ACME server; nothing for every other. Only hosts whose certificates the
/// cluster orders are answered for: at all others such a path is the replica's like any other.
pub fn answer(parts: &Parts, host: &str, listener: &HttpListener) -> Option<Response<ResponseBody>> {
    let token = parts.uri.path().strip_prefix(PREFIX)?;
    if !listener.routes.borrow().is_ordered(host) {
        return None;
    }
    let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
    let proof = listener
        .certificates
        .thumbprint()
        .filter(|_| is_read && acme::is_token(token));
    let (status, text) = match proof {
        Some(thumbprint) => (StatusCode::OK, format!("{token}.{thumbprint}")),
        None => (
            StatusCode::NOT_FOUND,
            "this is no challenge that the cluster could answer\n".to_owned(),
        ),
    };
    let mut response = Response::new(ResponseBody::own(text));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Some(response)
}
