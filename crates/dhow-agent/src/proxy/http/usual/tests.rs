//! Usual requests and their answers beside the same ones by way of maps of headers: what one says the other does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::Scheme;
use hyper::{Method, Request, Uri};
use proptest::prelude::*;
use proptest::sample::select;

use super::answer;
use super::request::{Begun, HeaderRoom, USUAL_BODY_MAX_BYTES, USUAL_HEAD_MAX_BYTES, read};
use crate::proxy::http::HEADERS_MAX;
use crate::proxy::http::head::{self, AnswerLength, RequestLength};
use crate::proxy::http::headers::{self, From};

const AT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// A head in lines: the first as it is, the others in small letters and sorted, for their order means nothing here.
fn lines(head: &[u8]) -> (String, Vec<String>) {
    let text = String::from_utf8_lossy(head).into_owned();
    let mut lines = text.strip_suffix("\r\n\r\n").unwrap_or(&text).split("\r\n");
    let first = lines.next().unwrap().to_owned();
    let mut rest: Vec<String> = lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            format!("{}:{value}", name.to_ascii_lowercase())
        })
        .collect();
    rest.sort();
    (first, rest)
}

fn from<'a>(peer: &'a HeaderValue, is_believed: bool) -> From<'a> {
    From {
        peer,
        scheme: &Scheme::HTTPS,
        at: AT,
        is_believed,
    }
}

/// The request as hyper gives it.
fn parts(method: &str, target: &str, fields: &[(String, String)]) -> Parts {
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    *request.uri_mut() = target.parse::<Uri>().unwrap();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        let value = HeaderValue::from_str(value.trim_matches([' ', '\t'])).unwrap();
        request.headers_mut().append(name, value);
    }
    request.into_parts().0
}

/// The head that a replica is sent by way of the map.
fn by_map(mut parts: Parts, body: u64, from: &From<'_>, prefix: Option<&str>) -> Vec<u8> {
    let host = headers::host(&parts).unwrap();
    headers::to_backend(&mut parts, host, from, None).unwrap();
    if let Some(prefix) = prefix {
        headers::strip_prefix(&mut parts, prefix).unwrap();
    }
    let length = match body {
        0 => RequestLength::Empty,
        bytes => RequestLength::Exact(bytes),
    };
    let mut out = Vec::new();
    head::write(&parts, length, &mut out);
    out
}

fn text_of(method: &str, target: &str, fields: &[(String, String)]) -> String {
    let lines: String = fields
        .iter()
        .map(|(name, value)| format!("{name}:{value}\r\n"))
        .collect();
    format!("{method} {target} HTTP/1.1\r\n{lines}\r\n")
}

fn any_target() -> impl Strategy<Value = String> {
    let odd = select(vec![
        "/",
        "/?",
        "/a?b=c?d",
        "//a",
        "/a//b",
        "/a/../b",
        "/api",
        "/api/x?y=1",
        "/api?q",
        "/a[1]|b",
        "/%41%zz",
        "/*",
    ]);
    prop_oneof![
        odd.prop_map(str::to_owned),
        "/[a-zA-Z0-9._~!$&'()*+,;=:@/%?|\\[\\]-]{0,20}"
    ]
}

fn any_field() -> impl Strategy<Value = (String, String)> {
    let names = select(vec![
        "Accept",
        "Cookie",
        "x-forwarded-for",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "x-forwarded-host",
        "x-forwarded-prefix",
        "X-Forwarded-Port",
        "Forwarded",
        "X-Real-IP",
        "x_real_ip",
        "X_Forwarded_For",
        "x-forwarded_proto",
        "TE",
        "Trailer",
        "Keep-Alive",
        "Proxy-Connection",
        "Proxy-Authorization",
        "x-request-id",
        "X_Api_Key",
        "If-None-Match",
        "proxy-authenticate",
        "user-agent",
        "content-type",
        "hos",
        "hostx",
        "content-lengthx",
        "Via",
        "f",
        "x",
        "t-",
    ]);
    let own = "[a-zA-Z][a-zA-Z0-9_-]{0,12}";
    let name = prop_oneof![3 => names.prop_map(str::to_owned), 1 => own];
    (name, "[ \t]{0,2}[!-~]{0,3}([ -~]{0,8}[!-~])?[ \t]{0,2}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_replica_is_sent_the_same_either_way(
        method in select(vec!["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]),
        target in any_target(),
        mut fields in prop::collection::vec(any_field(), 0..8),
        host_at in 0usize..8,
        body in prop::option::of(0u64..2_000),
        connection in select(vec![None, Some("close"), Some("keep-alive"), Some("Close")]),
        is_believed in any::<bool>(),
        is_stripped in any::<bool>(),
    ) {
        fields.insert(host_at.min(fields.len()), ("Host".to_owned(), " shop.test:80".to_owned()));
        fields.extend(body.map(|body| ("Content-Length".to_owned(), body.to_string())));
        fields.extend(connection.map(|word| ("Connection".to_owned(), word.to_owned())));
        let text = text_of(method, &target, &fields);
        let mut room = HeaderRoom::new();
        let Begun::Usual(request) = read(text.as_bytes(), &mut room) else {
            let unusual = ["transfer-encoding", "expect", "upgrade", "http2-settings", "host", "content-length", "connection"];
            let is_said_twice = |name: &str| fields.iter().filter(|(said, _)| said.eq_ignore_ascii_case(name)).count() > 1;
            prop_assert!(unusual.iter().any(|name| is_said_twice(name)), "{text}");
            return Ok(());
        };
        prop_assert_eq!(request.head_bytes, text.len());
        prop_assert_eq!(request.body_bytes.unwrap_or(0) as u64, body.unwrap_or(0));
        prop_assert_eq!(request.is_kept, !connection.is_some_and(|word| word.eq_ignore_ascii_case("close")));
        let parts = parts(method, &target, &fields);
        prop_assert_eq!(request.path(), parts.uri.path());
        let is_repeatable = parts.method.is_idempotent() && body.unwrap_or(0) == 0;
        prop_assert_eq!(request.may_replay(), is_repeatable);
        let peer = HeaderValue::from_static("192.0.2.1");
        let from = from(&peer, is_believed);
        let prefix = is_stripped.then_some("/api").filter(|prefix| target.starts_with(prefix));
        let mut out = Vec::new();
        request.write(&from, prefix, &mut out);
        prop_assert_eq!(lines(&out), lines(&by_map(parts, body.unwrap_or(0), &from, prefix)));
    }

    #[test]
    fn a_client_is_sent_the_same_either_way(
        status in select(vec![103u16, 200, 201, 204, 304, 404, 500, 599]),
        version in select(vec!["1.0", "1.1"]),
        is_head in any::<bool>(),
        fields in prop::collection::vec(
            (
                select(vec![
                    "Content-Length", "content-length", "Transfer-Encoding", "Connection", "connection", "Date", "Keep-Alive",
                    "Upgrade", "Trailer", "Set-Cookie", "x-mine", "X-Other", "Server", "Host", "TE",
                ]),
                select(vec![
                    "5", "7", "chunked", "Chunked", "gzip", "close", "keep-alive", "x-mine", "close, X-Other", "host, content-length",
                    "a=b", "", "date",
                ]),
            ),
            0..6,
        ),
    ) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.to_string(), format!(" {value}"))).collect();
        let text: String = fields.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
        let text = format!("HTTP/{version} {status} OK\r\n{text}\r\n");
        let method = if is_head { Method::HEAD } else { Method::GET };
        let bytes = Bytes::from(text.clone() + "rest");
        let mut out = Vec::new();
        let passed = answer::pass(&bytes, is_head, &mut out);
        let (map, passed) = match (head::read(&bytes, &method), passed) {
            (Ok(Some((map, count))), Ok(Some((passed, passed_count)))) => {
                prop_assert_eq!((count, passed_count), (text.len(), text.len()));
                (map, passed)
            }
            (Err(one), Err(other)) => {
                prop_assert_eq!(one, other);
                return Ok(());
            }
            (one, other) => return Err(TestCaseError::fail(format!("{text}: {one:?} {other:?}"))),
        };
        prop_assert_eq!((passed.length, passed.is_kept), (map.length, map.is_kept));
        let mut kept = map.response.headers().clone();
        headers::to_client(&mut kept, None);
        prop_assert_eq!(passed.has_date, kept.contains_key("date"));
        prop_assert_eq!(lines(&out).1, client_lines(kept, map.length, is_head), "{}", text);
    }

    #[test]
    fn a_head_is_the_same_however_it_is_cut(cut in 0usize..80, more in "[ -~]{0,20}") {
        let text = "POST /a?b HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 3\r\nCookie: a=b\r\n\r\n";
        let cut = cut.min(text.len() - 1);
        let mut room = HeaderRoom::new();
        prop_assert!(matches!(read(&text.as_bytes()[..cut], &mut room), Begun::Partial));
        let whole = format!("{text}{more}");
        let mut room = HeaderRoom::new();
        let Begun::Usual(request) = read(whole.as_bytes(), &mut room) else {
            return Err(TestCaseError::fail("it is usual"));
        };
        prop_assert_eq!(request.head_bytes, text.len());
        let text = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nx: y\r\n\r\n";
        let cut = cut.min(text.len() - 1);
        prop_assert!(answer::pass(&text.as_bytes()[..cut], false, &mut Vec::new()).unwrap().is_none());
    }

    /// Whatever the bytes are, nothing but a usual request is taken for one, and what a replica is sent has one head.
    #[test]
    fn what_is_sent_is_always_one_head(bytes in "(GET|POST|X) [ -~]{1,12} HTTP/1.[01]\r?\n((host|Host|content-length|x|connection)[ -:]{1,2}[ -~]{0,6}[\r\n\t ]{1,3}){0,4}\r?\n") {
        let mut room = HeaderRoom::new();
        if let Begun::Usual(request) = read(bytes.as_bytes(), &mut room) {
            let mut out = Vec::new();
            let peer = HeaderValue::from_static("192.0.2.1");
            request.write(&from(&peer, true), None, &mut out);
            let end = out.windows(4).position(|end| end == b"\r\n\r\n");
            prop_assert_eq!(end, Some(out.len() - 4));
            let line_ends = out.iter().filter(|byte| **byte == b'\n').count();
            let pairs = out.windows(2).filter(|pair| pair == b"\r\n").count();
            prop_assert_eq!(line_ends, pairs);
            let lengths = lines(&out).1.iter().filter(|line| line.starts_with("content-length:")).count();
            prop_assert!(lengths <= 1);
        }
    }
}

/// What hyper would have made of an answer's headers: it writes the length by the body.
fn client_lines(mut headers: HeaderMap, length: AnswerLength, is_head: bool) -> Vec<String> {
    let said = headers.remove("content-length");
    match length {
        AnswerLength::Exact(bytes) => {
            headers.insert("content-length", bytes.into());
        }
        AnswerLength::Chunked | AnswerLength::UntilClose => {
            headers.insert("transfer-encoding", HeaderValue::from_static("chunked"));
        }
        AnswerLength::Empty => {
            if let Some(said) = said.filter(|_| is_head) {
                headers.insert("content-length", said);
            }
        }
    }
    let lines = headers.iter();
    let mut lines: Vec<_> = lines
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}

const FIRST: [&str; 21] = [
    "GET / HTTP/1.0\r\nhost: h",
    "GET / HTTP/2.0\r\nhost: h",
    "GET /\r\nhost: h",
    "CONNECT h:80 HTTP/1.1\r\nhost: h",
    "TRACE / HTTP/1.1\r\nhost: h",
    "get / HTTP/1.1\r\nhost: h",
    "GET http://h/ HTTP/1.1\r\nhost: h",
    "OPTIONS * HTTP/1.1\r\nhost: h",
    "GET /#a HTTP/1.1\r\nhost: h",
    "GET /a\\b HTTP/1.1\r\nhost: h",
    "GET /\u{e9} HTTP/1.1\r\nhost: h",
    "GET /a b HTTP/1.1\r\nhost: h",
    "GET a HTTP/1.1\r\nhost: h",
    "GET / HTTP/1.1",
    "GET / HTTP/1.1\r\nhost:",
    "GET / HTTP/1.1\r\nhost: a b",
    "GET / HTTP/1.1\r\nhost: a/b",
    "GET / HTTP/1.1\r\nhost: a@b",
    "GET / HTTP/1.1\r\nhost: a,b",
    "PRI * HTTP/2.0",
    "\u{16}\u{3}\u{1}",
];

#[test]
fn what_might_be_read_in_two_ways_is_not_usual() {
    let usual = "GET / HTTP/1.1\r\nhost: h\r\n";
    let mut unusual: Vec<String> = [
        "content-length: 1\r\ncontent-length: 1",
        "content-length: 1, 1",
        "content-length: +1",
        "content-length: -1",
        "content-length: 0x1",
        "content-length: ",
        "content-length: 1 1",
        "content-length: 99999999999999999999",
        "transfer-encoding: chunked",
        "Transfer-Encoding: chunked\r\ncontent-length: 4",
        "transfer-encoding: identity",
        "transfer-encoding:\tchunked",
        "host: other",
        "Expect: 100-continue",
        "upgrade: websocket",
        "connection: upgrade",
        "connection: close, x",
        "connection: keep-alive, close",
        "http2-settings: AAMAAABk",
        "x: a\r\n b",
        "x : a",
        "x: a\0b",
        "x: a\rb",
        " x: a",
        ": a",
        "x",
    ]
    .map(|line| format!("{usual}{line}\r\n\r\n"))
    .to_vec();
    unusual.extend(FIRST.map(|first| format!("{first}\r\n\r\n")));
    unusual.push(format!("{usual}{}\r\n", "x: y\r\n".repeat(HEADERS_MAX)));
    unusual.push(format!("{usual}x: {}\r\n\r\n", "y".repeat(USUAL_HEAD_MAX_BYTES)));
    unusual.push(format!("{usual}x: {}", "y".repeat(USUAL_HEAD_MAX_BYTES)));
    unusual.push(format!("GET /{} HTTP/1.1\r\nhost: h\r\n\r\n", "z".repeat(9_000)));
    unusual.push(format!("{usual}x{}: y\r\n\r\n", "-z".repeat(40)));
    unusual.push(format!(
        "{usual}content-length: {}\r\n\r\n",
        USUAL_BODY_MAX_BYTES + 1
    ));
    for text in unusual {
        let mut room = HeaderRoom::new();
        let begun = read(text.as_bytes(), &mut room);
        assert!(
            matches!(begun, Begun::Unusual),
            "{:.200}: {begun:?}",
            text.escape_debug()
        );
    }
    let mut room = HeaderRoom::new();
    let text = format!("{usual}\r\n");
    assert!(matches!(read(text.as_bytes(), &mut room), Begun::Usual(_)));
}
