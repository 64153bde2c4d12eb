//! A request of HTTP/1.1 as nearly every client sends it: read from bytes, and written for a replica without anything in
//! between. Pure.
//!
//! What is read here is a narrow part of what the RFC allows: one host, at most one length, no codings, nothing that asks for
//! another protocol. A request that is anything else is told so, and hyper reads it from its first byte.

use std::mem::MaybeUninit;

use httparse::Header;
use hyper::header::HeaderValue;
use hyper::http::uri::Scheme;

use crate::proxy::http::HEADERS_MAX;
use crate::proxy::http::head::{write_line as line, write_number as number};
use crate::proxy::http::headers::{self, From};

/// The longest head that is usual, cookies and all.
pub const USUAL_HEAD_MAX_BYTES: usize = 16 << 10;
/// The longest body: it is kept until the replica has answered, so that it can be sent again where nothing of it was sent.
pub const USUAL_BODY_MAX_BYTES: usize = 48 << 10;
const TARGET_MAX_BYTES: usize = 8 << 10;
/// Names that mean something are shorter.
const NAME_MAX_BYTES: usize = 64;

/// Room for headers while they are looked at. It stands on the stack, and is not written before it is used.
pub struct HeaderRoom<'b>([MaybeUninit<Header<'b>>; HEADERS_MAX]);

impl HeaderRoom<'_> {
    pub fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; HEADERS_MAX])
    }
}

/// What stands at the beginning of some bytes.
#[derive(Debug)]
pub enum Begun<'h, 'b> {
    /// A head whose end has not come yet.
    Partial,
    Unusual,
    Usual(UsualRequest<'h, 'b>),
}

/// The head of a request, as it was sent.
#[derive(Debug)]
pub struct UsualRequest<'h, 'b> {
    pub method: &'b str,
    /// A path, with a query or without.
    pub target: &'b str,
    /// A name or an address, with its port if it gave one.
    pub host: &'b str,
    pub head_bytes: usize,
    /// How long the body is, where that is said.
    pub body_bytes: Option<usize>,
    /// The connection is to take another one after it.
    pub is_kept: bool,
    headers: &'h [Header<'b>],
}

/// What a header is to this proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Host,
    Length,
    Connection,
    Cookie,
    /// Who asks for it is served by hyper.
    Unusual,
    /// It means one connection.
    OneHop,
    /// Whom a request is for, as proxies say it.
    ForwardedFor,
    ForwardedProto,
    ForwardedHost,
    ForwardedPrefix,
    OfProxies,
    /// What programs may take for one of proxies.
    Mistaken,
    Other,
}

impl Meaning {
    fn of(name: &str) -> Self {
        let first = name.as_bytes().first().map(u8::to_ascii_lowercase);
        if !first.is_some_and(|first| b"cefhkptux".contains(&first)) {
            return Self::Other;
        }
        let mut room = [0; NAME_MAX_BYTES];
        let Some(room) = room.get_mut(..name.len()) else {
            // So long a name may begin as those of proxies do.
            return Self::Unusual;
        };
        room.copy_from_slice(name.as_bytes());
        room.make_ascii_lowercase();
        match std::str::from_utf8(room).unwrap_or_default() {
            "host" => Self::Host,
            "content-length" => Self::Length,
            "connection" => Self::Connection,
            "cookie" => Self::Cookie,
            "transfer-encoding" | "expect" | "upgrade" | "http2-settings" => Self::Unusual,
            "x-forwarded-for" => Self::ForwardedFor,
            "x-forwarded-proto" => Self::ForwardedProto,
            "x-forwarded-host" => Self::ForwardedHost,
            "x-forwarded-prefix" => Self::ForwardedPrefix,
            name if headers::is_of_one_hop(name) => Self::OneHop,
            name if headers::is_mistaken_for_proxies(name) => Self::Mistaken,
            name if headers::is_of_proxies(name) => Self::OfProxies,
            _ => Self::Other,
        }
    }
}

/// Reads the head at the beginning of these bytes.
pub fn read<'h, 'b>(bytes: &'b [u8], room: &'h mut HeaderRoom<'b>) -> Begun<'h, 'b> {
    let mut parsed = httparse::Request::new(&mut []);
    let head_bytes = match parsed.parse_with_uninit_headers(bytes, &mut room.0) {
        Ok(httparse::Status::Complete(count)) if count <= USUAL_HEAD_MAX_BYTES => count,
        Ok(httparse::Status::Partial) if bytes.len() < USUAL_HEAD_MAX_BYTES => return Begun::Partial,
        Ok(_) | Err(_) => return Begun::Unusual,
    };
    let (Some(method), Some(target), Some(1)) = (parsed.method, parsed.path, parsed.version) else {
        return Begun::Unusual;
    };
    match usual(method, target, parsed.headers, head_bytes) {
        Some(request) => Begun::Usual(request),
        None => Begun::Unusual,
    }
}

fn usual<'h, 'b>(
    method: &'b str,
    target: &'b str,
    headers: &'h [Header<'b>],
    head_bytes: usize,
) -> Option<UsualRequest<'h, 'b>> {
    let is_known = matches!(
        method,
        "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "PATCH" | "OPTIONS"
    );
    if !is_known || !is_usual_target(target) {
        return None;
    }
    let (mut host, mut body_bytes, mut is_kept) = (None, None, true);
    for header in headers {
        match Meaning::of(header.name) {
            Meaning::Host if host.is_none() => host = Some(usual_host(header.value)?),
            Meaning::Length if body_bytes.is_none() => body_bytes = Some(usual_length(header.value)?),
            Meaning::Connection => is_kept &= is_keeping(header.value)?,
            Meaning::Host | Meaning::Length | Meaning::Unusual => return None,
            Meaning::Cookie
            | Meaning::OneHop
            | Meaning::ForwardedFor
            | Meaning::ForwardedProto
            | Meaning::ForwardedHost
            | Meaning::ForwardedPrefix
            | Meaning::OfProxies
            | Meaning::Mistaken
            | Meaning::Other => {}
        }
    }
    Some(UsualRequest {
        method,
        target,
        host: host?,
        head_bytes,
        body_bytes,
        is_kept,
        headers,
    })
}

/// A path and a query of characters that mean the same to everybody.
fn is_usual_target(target: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%?[]|".contains(&byte);
    target.starts_with('/') && target.len() <= TARGET_MAX_BYTES && target.bytes().all(is_usual)
}

fn usual_host(value: &[u8]) -> Option<&str> {
    let host = std::str::from_utf8(value).ok()?;
    (!host.is_empty() && headers::is_host(host)).then_some(host)
}

fn usual_length(value: &[u8]) -> Option<usize> {
    const DIGITS_MAX: usize = 9;
    if value.is_empty() || value.len() > DIGITS_MAX || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length = std::str::from_utf8(value).ok()?.parse().ok()?;
    (length <= USUAL_BODY_MAX_BYTES).then_some(length)
}

/// Whether the connection goes on; one that names headers is unusual.
fn is_keeping(value: &[u8]) -> Option<bool> {
    if value.eq_ignore_ascii_case(b"keep-alive") {
        return Some(true);
    }
    value.eq_ignore_ascii_case(b"close").then_some(false)
}

impl<'b> UsualRequest<'_, 'b> {
    pub fn path(&self) -> &'b str {
        let end = self.target.find('?').unwrap_or(self.target.len());
        self.target.get(..end).unwrap_or(self.target)
    }

    /// What it said in cookies.
    pub fn cookies(&self) -> impl Iterator<Item = &'b str> {
        let cookies = self
            .headers
            .iter()
            .filter(|header| Meaning::of(header.name) == Meaning::Cookie && header.value.is_ascii());
        cookies.filter_map(|header| std::str::from_utf8(header.value).ok())
    }

    /// It may be sent again where it is not known what became of it.
    pub fn may_replay(&self) -> bool {
        let has_body = self.body_bytes.is_some_and(|bytes| bytes > 0);
        !has_body && matches!(self.method, "GET" | "HEAD" | "PUT" | "DELETE" | "OPTIONS")
    }

    /// Writes the head that a replica is sent, without the endpoint's path where that is to be taken away.
    pub fn write(&self, from: &From<'_>, prefix: Option<&str>, out: &mut Vec<u8>) {
        let prefix = prefix.and_then(|prefix| Some((prefix, HeaderValue::from_str(prefix).ok()?)));
        out.extend_from_slice(self.method.as_bytes());
        out.push(b' ');
        let rest = prefix
            .as_ref()
            .and_then(|(prefix, _)| self.target.strip_prefix(prefix));
        let target = rest.unwrap_or(self.target);
        if !target.starts_with('/') {
            out.push(b'/');
        }
        out.extend_from_slice(target.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
        out.extend_from_slice(self.host.as_bytes());
        out.extend_from_slice(b"\r\n");
        let said = self.write_headers(from.is_believed, prefix.is_some(), out);
        self.write_forwarded(from, said, out);
        if let Some((_, value)) = &prefix {
            line("x-forwarded-prefix", value.as_bytes(), out);
        }
        if let Some(bytes) = self.body_bytes {
            number("content-length", u64::try_from(bytes).unwrap_or_default(), out);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Passes on what the replica is to know; gives what a proxy in front that is believed has said.
    fn write_headers(&self, is_believed: bool, is_stripped: bool, out: &mut Vec<u8>) -> Said {
        let mut said = Said::default();
        for header in self.headers {
            let is_passed = match Meaning::of(header.name) {
                Meaning::Other | Meaning::Cookie => true,
                Meaning::OfProxies => is_believed,
                Meaning::ForwardedPrefix => is_believed && !is_stripped,
                Meaning::ForwardedProto => {
                    said.proto |= is_believed;
                    is_believed
                }
                Meaning::ForwardedHost => {
                    said.host |= is_believed;
                    is_believed
                }
                Meaning::ForwardedFor => {
                    said.addresses |= is_believed;
                    false
                }
                Meaning::Host
                | Meaning::Length
                | Meaning::Connection
                | Meaning::Unusual
                | Meaning::OneHop
                | Meaning::Mistaken => false,
            };
            if is_passed {
                line(header.name, header.value, out);
            }
        }
        said
    }

    fn write_forwarded(&self, from: &From<'_>, said: Said, out: &mut Vec<u8>) {
        out.extend_from_slice(b"x-forwarded-for: ");
        if said.addresses {
            let is_list = |header: &&Header<'_>| Meaning::of(header.name) == Meaning::ForwardedFor;
            for before in self.headers.iter().filter(is_list) {
                out.extend_from_slice(before.value);
                out.extend_from_slice(b", ");
            }
        }
        out.extend_from_slice(from.peer.as_bytes());
        out.extend_from_slice(b"\r\n");
        if !said.proto {
            let scheme = match *from.scheme == Scheme::HTTPS {
                true => &b"https"[..],
                false => b"http",
            };
            line("x-forwarded-proto", scheme, out);
        }
        if !said.host {
            line("x-forwarded-host", self.host.as_bytes(), out);
        }
    }
}

/// What was said by a proxy in front, and stays.
#[derive(Clone, Copy, Default)]
struct Said {
    addresses: bool,
    proto: bool,
    host: bool,
}
