//! Keeps web pages out: what a browser says to come from another site is refused at every door, and on plain loopback
//! also a request with an `Origin`, or with a `Host` that is no loopback name.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use dhow_wire::ProblemCode;

use crate::api::problem::ApiProblem;

/// Written by browsers alone, and by no page.
const SITE: &str = "sec-fetch-site";

/// A page of another site, or of another name of this host, may not call.
pub(in crate::api) fn check_site(headers: &HeaderMap) -> Result<(), ApiProblem> {
    let mut said = headers.get_all(SITE).iter();
    if said.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none")) {
        return Ok(());
    }
    let detail = "pages of other sites may not call this API: `Sec-Fetch-Site` names one";
    Err(ApiProblem::new(ProblemCode::Forbidden, detail))
}

pub(super) fn check(request: &Request) -> Result<(), ApiProblem> {
    if request.headers().contains_key(header::ORIGIN) {
        let detail = "web pages may not call this API: the request has an `Origin` header";
        return Err(ApiProblem::new(ProblemCode::Forbidden, detail));
    }
    check_host(request)
}

/// A name of another site that leads to this host is not answered.
pub(super) fn check_host(request: &Request) -> Result<(), ApiProblem> {
    let refused = |detail: &str| Err(ApiProblem::new(ProblemCode::Forbidden, detail));
    if request.headers().get_all(header::HOST).iter().nth(1).is_some() {
        return refused("the request has more than one `Host`");
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
    fn a_page_of_another_site_does_not_pass() {
        let sent = |sites: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for site in sites {
                headers.append(SITE, axum::http::HeaderValue::from_static(site));
            }
            check_site(&headers).is_ok()
        };
        for site in [&[] as &[_], &["same-origin"], &["none"]] {
            assert!(sent(site), "{site:?}");
        }
        for site in ["cross-site", "same-site", "", "Same-Origin", "same-origin, none"] {
            assert!(!sent(&[site]), "{site}");
        }
        assert!(!sent(&["none", "cross-site"]), "the second counts too");
    }

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
