//! The head of a replica's answer, written for the client as it is read. Pure.

use std::mem::MaybeUninit;

use hyper::{StatusCode, Version};

use crate::proxy::http::head::{
    AnswerLength, BadAnswer, Framing, has_no_length, words, write_line, write_number,
};
use crate::proxy::http::headers;
use crate::proxy::http::{HEADER_MAX_BYTES, HEADERS_MAX};

/// Names that mean something are shorter.
const NAME_MAX_BYTES: usize = 32;

/// What a replica said before the body, of which the client's head is written but for what this proxy adds.
#[derive(Debug)]
pub struct PassedHead {
    pub status: StatusCode,
    pub length: AnswerLength,
    /// The replica's connection takes another request after this one.
    pub is_kept: bool,
    pub has_date: bool,
}

/// The head at the beginning of `bytes`, with how many of them it has; `None` where some are still to come. What the client
/// is told of it is put behind what `out` has, without the empty line. `is_head` is whether the request asked for a head
/// alone.
pub fn pass(
    bytes: &[u8],
    is_head: bool,
    out: &mut Vec<u8>,
) -> Result<Option<(PassedHead, usize)>, BadAnswer> {
    let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let count = match config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut room) {
        Ok(httparse::Status::Complete(count)) if count <= HEADER_MAX_BYTES => count,
        Ok(httparse::Status::Partial) if bytes.len() < HEADER_MAX_BYTES => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(BadAnswer::Long),
        Err(_) => return Err(BadAnswer::Form),
    };
    let code = parsed.code.ok_or(BadAnswer::Form)?;
    let status = StatusCode::from_u16(code).map_err(|_| BadAnswer::Form)?;
    let version = match parsed.version {
        Some(0) => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    write_status(status, out);
    let (framing, has_date) = write_headers(parsed.headers, out);
    let (length, is_kept) = framing.end(is_head, status, version)?;
    match length {
        AnswerLength::Exact(bytes) => write_number("content-length", bytes, out),
        AnswerLength::Chunked | AnswerLength::UntilClose => write_line("transfer-encoding", b"chunked", out),
        // What would have come as the answer to another method.
        AnswerLength::Empty if is_head && !has_no_length(status) => {
            if let Some(bytes) = framing.said_length()? {
                write_number("content-length", bytes, out);
            }
        }
        AnswerLength::Empty => {}
    }
    let passed = PassedHead {
        status,
        length,
        is_kept,
        has_date,
    };
    Ok(Some((passed, count)))
}

pub fn write_status(status: StatusCode, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Passes on what means more than one connection.
fn write_headers<'b>(found: &[httparse::Header<'b>], out: &mut Vec<u8>) -> (Framing<'b>, bool) {
    let (mut framing, mut has_date) = (Framing::default(), false);
    let named = Named::by(found);
    for header in found {
        let mut room = [0; NAME_MAX_BYTES];
        let name = small(header.name, &mut room);
        framing.see(name, header.value);
        let is_kept_here = name == "content-length" || headers::is_of_one_hop(name);
        if is_kept_here || named.has(header.name) {
            continue;
        }
        has_date |= name == "date";
        write_line(header.name, header.value, out);
    }
    (framing, has_date)
}

/// A name in small letters; nothing for one that is too long to mean anything.
fn small<'r>(name: &str, room: &'r mut [u8; NAME_MAX_BYTES]) -> &'r str {
    let Some(room) = room.get_mut(..name.len()) else {
        return "";
    };
    room.copy_from_slice(name.as_bytes());
    room.make_ascii_lowercase();
    std::str::from_utf8(room).unwrap_or_default()
}

/// The headers that `Connection` names beside the usual words: they stay on this connection too.
struct Named<'h, 'b>(Option<&'h [httparse::Header<'b>]>);

impl<'h, 'b> Named<'h, 'b> {
    fn by(found: &'h [httparse::Header<'b>]) -> Self {
        let is_usual =
            |word: &[u8]| word.eq_ignore_ascii_case(b"close") || word.eq_ignore_ascii_case(b"keep-alive");
        let names = connections(found).any(|value| !words(value).all(is_usual));
        Self(names.then_some(found))
    }

    fn has(&self, name: &str) -> bool {
        let Some(found) = self.0 else { return false };
        let is_it = |word: &[u8]| word.eq_ignore_ascii_case(name.as_bytes());
        // Without it the message would be another one.
        !name.eq_ignore_ascii_case("host") && connections(found).flat_map(words).any(is_it)
    }
}

fn connections<'b>(found: &[httparse::Header<'b>]) -> impl Iterator<Item = &'b [u8]> {
    let named = found
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("connection"));
    named.map(|header| header.value)
}
