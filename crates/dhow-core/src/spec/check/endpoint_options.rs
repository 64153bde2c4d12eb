//! What an endpoint asks of the balancer: whether it means something there.

use super::finding::{FieldPath, SpecFinding};
use crate::spec::{Endpoint, Sticky, Takes, TimeSpan};

/// Ranges that one endpoint names: each request is compared with all of them.
const RANGES_MAX: usize = 256;
/// Longer than this nobody waits, and nobody means it.
const TIMEOUT_MAX: TimeSpan = TimeSpan::from_secs(24 * 3600);

pub(super) fn check(at: &FieldPath, endpoint: &Endpoint, findings: &mut Vec<SpecFinding>) {
    let options = &endpoint.options;
    let scheme = endpoint.protocol.scheme();
    let (is_http, is_udp) = (
        endpoint.takes() == Takes::Http,
        endpoint.takes() == Takes::Datagrams,
    );
    let only_http = [
        ("strip_prefix", options.strip_prefix),
        ("request_timeout", options.request_timeout.is_some()),
        ("access_log", options.access_log),
    ];
    for (field, _) in only_http.into_iter().filter(|(_, is_set)| *is_set && !is_http) {
        findings.push(
            SpecFinding::at(at.key(field), format!("a {scheme} endpoint has no `{field}`"))
                .because(at.key("protocol"))
                .hint("only http and websocket endpoints have requests"),
        );
    }
    if options.strip_prefix && is_http && endpoint.path.as_deref().is_none_or(|path| path == "/") {
        findings.push(
            SpecFinding::at(
                at.key("strip_prefix"),
                "there is no `path` that could be taken away",
            )
            .hint("name the `path`, or remove `strip_prefix`"),
        );
    }
    if options.sticky == Some(Sticky::Cookie) && !is_http {
        findings.push(
            SpecFinding::at(at.key("sticky"), format!("a {scheme} endpoint has no cookies"))
                .because(at.key("protocol"))
                .hint("write `sticky: ip`"),
        );
    }
    if options.proxy_protocol.is_some() && endpoint.takes() != Takes::Streams {
        findings.push(
            SpecFinding::at(
                at.key("proxy_protocol"),
                format!("replicas of a {scheme} endpoint get no PROXY header"),
            )
            .because(at.key("protocol"))
            .hint("http requests carry `X-Forwarded-For`; tcp and https endpoints may have `proxy_protocol`"),
        );
    }
    if options.idle_timeout.is_some() && is_udp {
        findings.push(
            SpecFinding::at(at.key("idle_timeout"), "a udp endpoint has no `idle_timeout`")
                .because(at.key("protocol"))
                .hint("remove it: who says nothing for a while is another caller afterwards"),
        );
    }
    check_times(at, endpoint, findings);
    check_ranges(at, endpoint, findings);
}

fn check_times(at: &FieldPath, endpoint: &Endpoint, findings: &mut Vec<SpecFinding>) {
    let times = [
        ("request_timeout", endpoint.options.request_timeout),
        ("idle_timeout", endpoint.options.idle_timeout),
    ];
    for (field, time) in times {
        let hint = "write a time between `1ms` and `24h`, or leave it out for none";
        match time {
            Some(TimeSpan::ZERO) => {
                findings.push(SpecFinding::at(at.key(field), "nobody could answer in no time").hint(hint));
            }
            Some(time) if time > TIMEOUT_MAX => {
                let message = format!("`{time}` is longer than a day");
                findings.push(SpecFinding::at(at.key(field), message).hint(hint));
            }
            Some(_) | None => {}
        }
    }
}

fn check_ranges(at: &FieldPath, endpoint: &Endpoint, findings: &mut Vec<SpecFinding>) {
    let ranges = &endpoint.options.allow_from;
    if ranges.is_empty() {
        return;
    }
    let place = at.key("allow_from");
    if !endpoint.is_public() {
        findings.push(
            SpecFinding::at(
                place.clone(),
                "only callers from outside are known by their address",
            )
            .because(at.key("expose"))
            .hint("write `expose: public`, or name services with `allow`"),
        );
    }
    if ranges.len() > RANGES_MAX {
        let message = format!(
            "`allow_from` names {} ranges, at most {RANGES_MAX} are possible",
            ranges.len()
        );
        findings.push(SpecFinding::at(place, message).hint("join ranges that lie beside each other"));
    }
}
