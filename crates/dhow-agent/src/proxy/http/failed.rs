//! The proxy's own word, where a client gets no backend's.

use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};

use super::body::ResponseBody;
use super::extended;
use super::head::BadAnswer;
use super::headers::Bad;

const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Why a client gets the proxy's own word instead of a backend's.
pub enum Failed {
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
    /// As many requests wait for a first replica as may.
    Crowded,
    /// Nobody hears that a first replica is called for.
    Unheard,
    /// This node has as much under way as it can.
    Full,
    Lost,
    /// The replica has answered, and not in a way that can be passed on.
    Answer(Option<BadAnswer>),
    /// The replica took longer than its endpoint lets it.
    Late,
}

fn unavailable(why: &str) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
}

/// The headers that stand with the proxy's own word.
pub fn said_with(status: StatusCode) -> impl Iterator<Item = (header::HeaderName, HeaderValue)> {
    let comes_back = status == StatusCode::SERVICE_UNAVAILABLE;
    let retry = comes_back.then_some((header::RETRY_AFTER, RETRY_AFTER));
    [(header::CONTENT_TYPE, PLAIN_TEXT)].into_iter().chain(retry)
}

impl Failed {
    pub fn no_route(host: &str, path: &str) -> Self {
        Self::NoRoute {
            host: host.to_owned(),
            path: path.to_owned(),
        }
    }

    /// Whether replicas are to blame, and neither the client nor its request.
    pub fn is_of_replicas(&self) -> bool {
        match self {
            Self::NoBackend | Self::Crowded | Self::Unheard | Self::Lost | Self::Answer(_) | Self::Late => {
                true
            }
            Self::Bad(_)
            | Self::Body
            | Self::Stalled
            | Self::Connect(_)
            | Self::NoRoute { .. }
            | Self::Forbidden
            | Self::Full => false,
        }
    }

    pub fn response(self) -> Response<ResponseBody> {
        let (status, text) = self.words();
        let mut response = Response::new(ResponseBody::own(text));
        *response.status_mut() = status;
        for (name, value) in said_with(status) {
            response.headers_mut().insert(name, value);
        }
        response
    }

    pub fn words(self) -> (StatusCode, String) {
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
            Self::Crowded => unavailable("as many requests wait for the first replica as may\n"),
            Self::Unheard => unavailable("no replica runs, and no leader is reached to have one started\n"),
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
