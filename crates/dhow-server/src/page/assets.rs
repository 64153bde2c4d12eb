//! The style, the script and the mark of the page, which are part of the binary.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/page.js");
const ICON: &str = include_str!("assets/icon.svg");

/// Changes with the files: what a browser keeps is of one version.
pub(super) fn version() -> String {
    let mut hasher = blake3::Hasher::new();
    for text in [STYLE, SCRIPT, ICON] {
        hasher.update(text.as_bytes());
    }
    super::format::hex(&hasher.finalize().as_bytes()[..6])
}

fn asset(kind: &'static str, text: &'static str, headers: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", version());
    let known = headers.get(header::IF_NONE_MATCH);
    let is_known = known.is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let status = if is_known {
        StatusCode::NOT_MODIFIED
    } else {
        StatusCode::OK
    };
    let mut response = (status, if is_known { "" } else { text }).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

pub(super) async fn style(headers: HeaderMap) -> Response {
    asset("text/css; charset=utf-8", STYLE, &headers)
}

pub(super) async fn script(headers: HeaderMap) -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT, &headers)
}

pub(super) async fn icon(headers: HeaderMap) -> Response {
    asset("image/svg+xml", ICON, &headers)
}
