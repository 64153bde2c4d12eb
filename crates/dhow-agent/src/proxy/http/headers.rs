//! Headers on their way through: what belongs to one connection stays there, and the backend learns who
//! asked.

use std::net::{Ipv6Addr, SocketAddr};

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{Uri, Version};

use super::pool::Speaks;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// What proxies say to whoever is behind them.
pub fn is_of_proxies(name: &str) -> bool {
    matches!(name, "forwarded" | "x-real-ip") || name.starts_with("x-forwarded-")
}

/// What no proxy says, and many programs take for the same: they are given headers as variables, in which a hyphen is an
/// underscore.
pub fn is_mistaken_for_proxies(name: &str) -> bool {
    name.contains('_') && is_of_proxies(&name.replace('_', "-"))
}

const GRPC: &str = "application/grpc";

/// What one connection means and the next does not. `Connection` may name more; `HTTP2-Settings` goes with a wish for
/// `h2c`, which is not passed on.
pub fn is_of_one_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
    )
}

/// What a request asked for that cannot be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    NoHost,
    TwoHosts,
    /// What stands there would mean something else to whoever makes a link of it.
    OddHost,
    NoPath,
    /// Its body is in a form that would be lost on the way.
    Coding,
}

/// Whom a request is from, and how it came.
pub struct From<'a> {
    pub peer: &'a HeaderValue,
    pub scheme: &'a Scheme,
    /// Where it came in.
    pub at: SocketAddr,
    /// What it says of whom it speaks for counts.
    pub is_believed: bool,
}

/// The host that a request is for, with its port if it gave one: a name or an address, and nothing else. Routes are found
/// by what stands before the port, and replicas make links of all of it.
pub fn host(parts: &Parts) -> Result<HeaderValue, Bad> {
    let said = said_host(parts)?;
    match said.to_str().is_ok_and(is_host) {
        true => Ok(said),
        false => Err(Bad::OddHost),
    }
}

fn said_host(parts: &Parts) -> Result<HeaderValue, Bad> {
    // The target's own host wins over the header, as the RFC has it.
    if let Some(authority) = parts.uri.authority() {
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        return HeaderValue::from_str(host).map_err(|_| Bad::NoHost);
    }
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => Ok(host.clone()),
        (Some(_), Some(_)) => Err(Bad::TwoHosts),
        // HTTP/1.0 had none.
        (None, _) if parts.version < Version::HTTP_11 => Ok(HeaderValue::from_static("")),
        (None, _) => Err(Bad::NoHost),
    }
}

/// Whether this is a name or an address, with a port or without. None at all is what HTTP/1.0 says.
pub fn is_host(host: &str) -> bool {
    let name = without_port(host);
    let port = host.get(name.len()..).unwrap_or_default();
    let is_port = port
        .trim_start_matches(':')
        .bytes()
        .all(|byte| byte.is_ascii_digit());
    let inside = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    is_port
        && match inside {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => name.bytes().all(is_of_names),
        }
}

/// Underscores stand in names that people give to hosts, though DNS has none for these.
fn is_of_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

/// A host without its port; an IPv6 address keeps its brackets.
pub fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(at) if !host.get(at..).unwrap_or_default().contains(']') => host.get(..at).unwrap_or(host),
        Some(_) | None => host,
    }
}

/// The protocols that the client wants to change to, if it does, as far as they are passed on.
pub fn upgrade(parts: &Parts) -> Option<HeaderValue> {
    let is_asked =
        tokens(&parts.headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    if !is_asked || parts.version != Version::HTTP_11 {
        return None;
    }
    let wanted: Vec<&str> = tokens(&parts.headers, &header::UPGRADE)
        .filter(|protocol| may_change_to(protocol))
        .collect();
    let wanted = HeaderValue::from_str(&wanted.join(", ")).ok()?;
    (!wanted.is_empty()).then_some(wanted)
}

/// Another version of HTTP, or TLS, inside a connection that is only copied any more would carry requests past the
/// routes, the headers that say who asks, and whatever stands in front of this proxy.
pub fn may_change_to(protocol: &str) -> bool {
    const NEVER: [&str; 5] = ["", "h2", "h2c", "http", "tls"];
    let name = protocol.split('/').next().unwrap_or_default().trim();
    !NEVER.iter().any(|never| name.eq_ignore_ascii_case(never))
}

/// Turns a client's request into the backend's.
pub fn to_backend(
    parts: &mut Parts,
    host: HeaderValue,
    from: &From<'_>,
    upgrade: Option<&HeaderValue>,
) -> Result<(), Bad> {
    let from_two = parts.version == Version::HTTP_2;
    // Chunks are what every hop makes of its own; anything else would be told to nobody.
    let mut codings = parts.headers.get_all(header::TRANSFER_ENCODING).iter();
    if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return Err(Bad::Coding);
    }
    // It was this proxy that the client waited for; the body follows by itself. Whoever is not believed says nothing of
    // whom it speaks for.
    strip(&mut parts.headers, |name| {
        is_of_one_hop(name)
            || name == "expect"
            || is_mistaken_for_proxies(name)
            || (!from.is_believed && is_of_proxies(name))
    });
    if let Some(upgrade) = upgrade {
        keep_upgrade(&mut parts.headers, upgrade);
    }
    forwarded(&mut parts.headers, &host, from);
    parts
        .headers
        .insert(header::HOST, host_for_backend(host, from.at));
    if from_two {
        join_cookies(&mut parts.headers);
    }
    if parts.uri.scheme().is_some() || parts.uri.authority().is_some() {
        let path = parts.uri.path_and_query().cloned().ok_or(Bad::NoPath)?;
        parts.uri = Uri::from(path);
    }
    parts.version = Version::HTTP_11;
    Ok(())
}

/// HTTP/1.1 has a host always, and most servers refuse a request without: who names none means where it came in.
fn host_for_backend(host: HeaderValue, at: SocketAddr) -> HeaderValue {
    match host.is_empty() {
        true => HeaderValue::try_from(at.to_string()).unwrap_or(host),
        false => host,
    }
}

/// Which version of HTTP a request needs: gRPC is nothing without HTTP/2 all the way, everything else is sent as
/// HTTP/1.1, which every server knows.
pub fn speaks(parts: &Parts) -> Speaks {
    let kind = parts.headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let rest = kind.strip_prefix(GRPC);
    // `application/grpc-web` is made for HTTP/1.1.
    let is_grpc = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']));
    match is_grpc && parts.version == Version::HTTP_2 {
        true => Speaks::Two,
        false => Speaks::One,
    }
}

/// Makes a backend's request one of HTTP/2.
pub fn to_two(parts: &mut Parts) -> Result<(), Bad> {
    let host = parts.headers.remove(header::HOST).ok_or(Bad::NoHost)?;
    let path = parts.uri.path_and_query().cloned().ok_or(Bad::NoPath)?;
    let uri = Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(host.as_bytes())
        .path_and_query(path);
    parts.uri = uri.build().map_err(|_| Bad::NoHost)?;
    parts.version = Version::HTTP_2;
    parts
        .headers
        .insert(header::TE, HeaderValue::from_static("trailers"));
    Ok(())
}

/// Takes the endpoint's path away, and says so to the replica.
pub fn strip_prefix(parts: &mut Parts, prefix: &str) -> Result<(), Bad> {
    let whole = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let rest = whole.strip_prefix(prefix).unwrap_or(whole);
    let rest = match rest.starts_with('/') {
        true => rest.to_owned(),
        false => format!("/{rest}"),
    };
    parts.uri = rest.parse().map_err(|_| Bad::NoPath)?;
    if let Ok(prefix) = HeaderValue::from_str(prefix) {
        parts.headers.insert(FORWARDED_PREFIX, prefix);
    }
    Ok(())
}

/// Turns a backend's response into the client's.
pub fn to_client(headers: &mut HeaderMap, upgrade: Option<&HeaderValue>) {
    strip(headers, is_of_one_hop);
    if let Some(upgrade) = upgrade {
        keep_upgrade(headers, upgrade);
    }
}

fn keep_upgrade(headers: &mut HeaderMap, upgrade: &HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, upgrade.clone());
}

/// A proxy in front that is believed may have written them: its word on protocol and host stands, the list of addresses
/// grows. Whatever somebody else has written is gone by now.
fn forwarded(headers: &mut HeaderMap, host: &HeaderValue, from: &From<'_>) {
    let peer = from.peer;
    let before: Vec<&[u8]> = headers
        .get_all(FORWARDED_FOR)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    let list = if before.is_empty() {
        peer.clone()
    } else {
        let mut list = before.join(&b", "[..]);
        list.extend_from_slice(b", ");
        list.extend_from_slice(peer.as_bytes());
        HeaderValue::from_bytes(&list).unwrap_or_else(|_| peer.clone())
    };
    headers.insert(FORWARDED_FOR, list);
    if !headers.contains_key(FORWARDED_PROTO) {
        let scheme = match *from.scheme == Scheme::HTTPS {
            true => HeaderValue::from_static("https"),
            false => HeaderValue::from_static("http"),
        };
        headers.insert(FORWARDED_PROTO, scheme);
    }
    if !headers.contains_key(FORWARDED_HOST) && !host.is_empty() {
        headers.insert(FORWARDED_HOST, host.clone());
    }
}

/// HTTP/2 may send a cookie in pieces, HTTP/1 may not.
fn join_cookies(headers: &mut HeaderMap) {
    let pieces: Vec<&[u8]> = headers
        .get_all(header::COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if pieces.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&pieces.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, joined);
    }
}

/// Takes away what is meant by `is_gone`, and what `Connection` names.
fn strip(headers: &mut HeaderMap, is_gone: impl Fn(&str) -> bool) {
    let mut gone: Vec<HeaderName> = Vec::new();
    if headers.contains_key(header::CONNECTION) {
        let named = tokens(headers, &header::CONNECTION).filter_map(|token| token.parse().ok());
        // Without these the message would be another one: nobody may have them taken away.
        gone.extend(named.filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH));
    }
    gone.extend(headers.keys().filter(|name| is_gone(name.as_str())).cloned());
    for name in gone {
        headers.remove(name);
    }
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const AT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

    /// Makes a request ready for a backend, from a client that is believed or is not.
    fn pass_on(parts: &mut Parts, is_believed: bool) {
        let peer = HeaderValue::from_static("192.0.2.1");
        let from = From {
            peer: &peer,
            scheme: &Scheme::HTTP,
            at: AT,
            is_believed,
        };
        to_backend(parts, HeaderValue::from_static("h"), &from, None).unwrap();
    }

    fn asking(headers: &[(&str, &str)]) -> Parts {
        let mut request = hyper::Request::builder().header("connection", "Upgrade, HTTP2-Settings");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn who_names_no_host_means_where_it_came_in() {
        let peer = HeaderValue::from_static("192.0.2.1");
        let from = From {
            peer: &peer,
            scheme: &Scheme::HTTP,
            at: AT,
            is_believed: false,
        };
        let mut parts = asking(&[]);
        parts.version = Version::HTTP_10;
        let said = host(&parts).unwrap();
        to_backend(&mut parts, said, &from, None).unwrap();
        assert_eq!(parts.headers["host"], "127.0.0.1:8080");
        assert!(!parts.headers.contains_key("x-forwarded-host"));
    }

    #[test]
    fn a_host_is_a_name_or_an_address() {
        for fine in [
            "",
            "shop.test",
            "shop.test:8080",
            "shop.test:",
            "my_shop",
            "192.0.2.1:80",
            "[::1]",
            "[2001:db8::1]:443",
        ] {
            assert_eq!(
                host(&asking(&[("host", fine)])),
                Ok(fine.parse().unwrap()),
                "{fine}"
            );
        }
        for odd in [
            "shop.test:80@evil.test",
            "shop.test:@evil.test",
            "evil.test/.shop.test",
            "x@evil.test",
            "shop.test:80:80",
            "shop.test, evil.test",
            "shop test",
            "<b>",
            "[shop.test]",
            "[::1",
            "::1",
        ] {
            assert_eq!(host(&asking(&[("host", odd)])), Err(Bad::OddHost), "{odd}");
        }
        let mut parts = asking(&[("host", "evil.test")]);
        parts.uri = "http://user:secret@shop.test:80/".parse().unwrap();
        assert_eq!(host(&parts), Ok("shop.test:80".parse().unwrap()));
    }

    #[test]
    fn who_is_not_believed_speaks_for_nobody() {
        for (name, is_gone, is_gone_of_believed) in [
            ("forwarded", true, false),
            ("x-real-ip", true, false),
            ("x-forwarded-ssl", true, false),
            ("x_real_ip", true, true),
            ("x_forwarded_for", true, true),
            ("x-forwarded_proto", true, true),
            ("x-forwarded", false, false),
            ("x_api_key", false, false),
        ] {
            for (is_believed, is_gone) in [(false, is_gone), (true, is_gone_of_believed)] {
                let mut parts = asking(&[(name, "192.0.2.9")]);
                pass_on(&mut parts, is_believed);
                assert_eq!(!parts.headers.contains_key(name), is_gone, "{name} {is_believed}");
            }
        }
    }

    #[test]
    fn another_http_inside_the_connection_is_not_passed_on() {
        for refused in [
            "h2c",
            "H2C",
            " h2c ",
            "h2",
            "HTTP/2.0",
            "TLS/1.0",
            "h2c, HTTP/2.0",
            "",
        ] {
            assert_eq!(upgrade(&asking(&[("upgrade", refused)])), None, "{refused}");
        }
        assert_eq!(
            upgrade(&asking(&[("upgrade", "websocket")])).unwrap(),
            "websocket"
        );
        assert_eq!(
            upgrade(&asking(&[("upgrade", "h2c, websocket")])).unwrap(),
            "websocket"
        );
        let twice = asking(&[("upgrade", "websocket"), ("upgrade", "h2c")]);
        assert_eq!(upgrade(&twice).unwrap(), "websocket");
        let mut parts = asking(&[("upgrade", "h2c"), ("http2-settings", "AAMAAABk")]);
        pass_on(&mut parts, false);
        for gone in ["upgrade", "http2-settings", "connection"] {
            assert!(!parts.headers.contains_key(gone), "{gone}");
        }
    }
}
