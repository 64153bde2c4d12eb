//! Keeps web pages out where no token is asked for: a request with an `Origin`, or with a `Host` that is no loopback
//! name, comes from a page in a browser of this host.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header;
use dhow_wire::ProblemCode;

use crate::api::problem::ApiProblem;

pub(super) fn check(request: &Request) -> Result<(), ApiProblem> {
    let refused = |detail: &str| Err(ApiProblem::new(ProblemCode::Forbidden, detail));
    if request.headers().contains_key(header::ORIGIN) {
        return refused("web pages may not call this API: the request has an `Origin` header");
    }
    let host = request
        .uri()
        .authority()
        .map(|authority| authority.as_str())
        .or_else(|| request.headers().get(header::HOST)?.to_str().ok());
    if !host.is_some_and(is_loopback) {
        return refused("call this API as `localhost` or by its loopback address: the `Host` is another one");
    }
    Ok(())
}

/// `localhost`, `127.0.0.1` and the like, with or without a port.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if is_port(port) => name,
            Some(_) | None => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':');
    text.is_empty() || digits.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_pass() {
        for host in [
            "localhost",
            "LOCALHOST:3669",
            "127.0.0.1:80",
            "127.9.9.9",
            "[::1]",
            "[::1]:3669",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "10.0.0.1:3669",
            "[::2]:1",
            "[::1",
            "[::1]x",
            "localhost:80:80",
            "0.0.0.0",
            "127.0.0.1@example.com",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
