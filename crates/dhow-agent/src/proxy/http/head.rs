//! The heads of HTTP/1.1 between the proxy and a replica: that of a request is written, that of an answer is read. Pure.

use std::mem::MaybeUninit;

use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Response, StatusCode, Version};

use super::{HEADER_MAX_BYTES, HEADERS_MAX};

/// How a replica is told where a request's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestLength {
    Empty,
    Exact(u64),
    Chunked,
}

/// How the end of an answer's body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerLength {
    Empty,
    Exact(u64),
    Chunked,
    /// With the connection.
    UntilClose,
}

/// What a replica said before the body.
#[derive(Debug)]
pub struct AnswerHead {
    pub response: Response<()>,
    pub length: AnswerLength,
    /// The connection takes another request after this one.
    pub is_kept: bool,
}

/// What a replica sent that is no answer of HTTP, or one that might be read in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    #[error("the replica's answer is not HTTP/1")]
    Form,
    #[error("the headers of the replica's answer have more than {HEADER_MAX_BYTES} bytes")]
    Long,
    #[error("the replica's answer says in two ways where it ends")]
    Length,
    #[error("the replica's answer has a transfer coding that nobody asked for")]
    Coding,
}

/// Writes the head of a request. Where its body ends is said here alone, whatever the headers say.
pub fn write(parts: &Parts, length: RequestLength, out: &mut Vec<u8>) {
    let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    // A target may have a query and no path, as `http://host?query`.
    if path.starts_with('?') {
        out.push(b'/');
    }
    out.extend_from_slice(path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let mut said_length = false;
    for (name, value) in &parts.headers {
        if name == header::CONTENT_LENGTH || name == header::TRANSFER_ENCODING {
            said_length = true;
            continue;
        }
        write_line(name.as_str(), value.as_bytes(), out);
    }
    match length {
        RequestLength::Empty if said_length => write_line("content-length", b"0", out),
        RequestLength::Empty => {}
        RequestLength::Exact(bytes) => write_line("content-length", bytes.to_string().as_bytes(), out),
        RequestLength::Chunked => write_line("transfer-encoding", b"chunked", out),
    }
    out.extend_from_slice(b"\r\n");
}

pub fn write_line(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub fn write_number(name: &str, number: u64, out: &mut Vec<u8>) {
    const DIGITS_MAX: usize = 20;
    let (mut digits, mut left) = ([b'0'; DIGITS_MAX], number);
    let mut begin = DIGITS_MAX - 1;
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        // The rest of a number of 64 bits by ten is below ten.
        *digit = b'0' + u8::try_from(left % 10).unwrap_or_default();
        left /= 10;
        begin = at;
        if left == 0 {
            break;
        }
    }
    write_line(name, digits.get(begin..).unwrap_or_default(), out);
}

/// The head at the beginning of `bytes`, with how many of them it has; `None` where some are still to come. `method` is that
/// of the request that is answered.
pub fn read(bytes: &Bytes, method: &Method) -> Result<Option<(AnswerHead, usize)>, BadAnswer> {
    let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let count = match config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut room) {
        Ok(httparse::Status::Complete(count)) if count <= HEADER_MAX_BYTES => count,
        Ok(httparse::Status::Partial) if bytes.len() < HEADER_MAX_BYTES => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(BadAnswer::Long),
        Err(_) => return Err(BadAnswer::Form),
    };
    let mut headers = HeaderMap::with_capacity(parsed.headers.len());
    for found in parsed.headers.iter() {
        let name = HeaderName::from_bytes(found.name.as_bytes()).map_err(|_| BadAnswer::Form)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(found.value));
        headers.append(name, value.map_err(|_| BadAnswer::Form)?);
    }
    let mut response = Response::new(());
    let code = parsed.code.ok_or(BadAnswer::Form)?;
    *response.status_mut() = StatusCode::from_u16(code).map_err(|_| BadAnswer::Form)?;
    *response.version_mut() = match parsed.version {
        Some(0) => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    let mut framing = Framing::default();
    for (name, value) in &headers {
        framing.see(name.as_str(), value.as_bytes());
    }
    let is_head = *method == Method::HEAD;
    let (length, is_kept) = framing.end(is_head, response.status(), response.version())?;
    let said = headers.get(header::CONTENT_LENGTH).cloned();
    match said {
        // There is nothing whose length it could be, and some clients break off where they are told one.
        Some(_) if has_no_length(response.status()) => {
            headers.remove(header::CONTENT_LENGTH);
        }
        // It may be said again and is passed on once.
        Some(first) => {
            headers.insert(header::CONTENT_LENGTH, first);
        }
        None => {}
    }
    *response.headers_mut() = headers;
    Ok(Some((
        AnswerHead {
            response,
            length,
            is_kept,
        },
        count,
    )))
}

/// Whether an answer of this kind has no body whose length it could say.
pub fn has_no_length(status: StatusCode) -> bool {
    status == StatusCode::NO_CONTENT || status.is_informational()
}

/// What the headers of an answer say of where it ends, and of whether its connection goes on.
#[derive(Default)]
pub struct Framing<'a> {
    length: Option<&'a [u8]>,
    has_two_lengths: bool,
    coding: Option<&'a [u8]>,
    has_two_codings: bool,
    closes: bool,
    keeps: bool,
}

impl<'a> Framing<'a> {
    /// Looks at a header; its name is in small letters.
    pub fn see(&mut self, name: &str, value: &'a [u8]) {
        match name {
            "content-length" => {
                self.has_two_lengths |= self.length.is_some_and(|first| first != value);
                self.length = self.length.or(Some(value));
            }
            "transfer-encoding" => {
                self.has_two_codings |= self.coding.is_some();
                self.coding = Some(value);
            }
            "connection" => {
                for word in words(value) {
                    self.closes |= word.eq_ignore_ascii_case(b"close");
                    self.keeps |= word.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            _ => {}
        }
    }

    /// As the RFC has it; what it leaves to the reader's mercy is refused.
    pub fn end(
        &self,
        is_head: bool,
        status: StatusCode,
        version: Version,
    ) -> Result<(AnswerLength, bool), BadAnswer> {
        let length = self.answer_length(is_head, status, version)?;
        let is_kept = match version {
            Version::HTTP_10 => self.keeps,
            _ => !self.closes,
        };
        Ok((length, is_kept && length != AnswerLength::UntilClose))
    }

    fn answer_length(
        &self,
        is_head: bool,
        status: StatusCode,
        version: Version,
    ) -> Result<AnswerLength, BadAnswer> {
        if has_no_length(status) {
            return Ok(AnswerLength::Empty);
        }
        if is_head || status == StatusCode::NOT_MODIFIED {
            self.said_length()?;
            return Ok(AnswerLength::Empty);
        }
        if let Some(coding) = self.coding {
            let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            if !is_chunked || self.has_two_codings || version == Version::HTTP_10 {
                return Err(BadAnswer::Coding);
            }
            return match self.length {
                Some(_) => Err(BadAnswer::Length),
                None => Ok(AnswerLength::Chunked),
            };
        }
        let said = self.said_length()?;
        Ok(said.map_or(AnswerLength::UntilClose, AnswerLength::Exact))
    }

    /// The length that headers say, where they say one.
    pub fn said_length(&self) -> Result<Option<u64>, BadAnswer> {
        let Some(first) = self.length else {
            return Ok(None);
        };
        let digits =
            Some(first).filter(|digits| !self.has_two_lengths && digits.iter().all(u8::is_ascii_digit));
        let text = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let bytes = text.and_then(|text| text.parse().ok());
        bytes.map(Some).ok_or(BadAnswer::Length)
    }
}

/// What stands between the commas of a header.
pub fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn parse(text: &str, method: &Method) -> Result<Option<(AnswerHead, usize)>, BadAnswer> {
        read(&Bytes::copy_from_slice(text.as_bytes()), method)
    }

    #[test]
    fn where_an_answer_ends() {
        use AnswerLength::{Chunked, Empty, Exact, UntilClose};
        let (get, head) = (Method::GET, Method::HEAD);
        for (method, lines, expected, is_kept) in [
            (&get, "HTTP/1.1 200 OK\r\ncontent-length: 7", Exact(7), true),
            (&get, "HTTP/1.1 200 OK\r\ncontent-length: 0", Exact(0), true),
            (
                &get,
                "HTTP/1.1 200 OK\r\ncontent-length: 7\r\nContent-Length: 7",
                Exact(7),
                true,
            ),
            (
                &get,
                "HTTP/1.1 200 \r\ncontent-length: 7\r\nconnection: x, Close",
                Exact(7),
                false,
            ),
            (&get, "HTTP/1.0 200 OK\r\ncontent-length: 7", Exact(7), false),
            (
                &get,
                "HTTP/1.0 200 OK\r\ncontent-length: 7\r\nconnection: Keep-Alive",
                Exact(7),
                true,
            ),
            (
                &get,
                "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked",
                Chunked,
                true,
            ),
            (&get, "HTTP/1.1 200 OK\r\nserver: x", UntilClose, false),
            (&head, "HTTP/1.1 200 OK\r\ncontent-length: 7", Empty, true),
            (
                &head,
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked",
                Empty,
                true,
            ),
            (&get, "HTTP/1.1 204 No Content\r\nserver: x", Empty, true),
            (
                &get,
                "HTTP/1.1 304 Not Modified\r\ncontent-length: 7",
                Empty,
                true,
            ),
            (&get, "HTTP/1.1 103 Early Hints\r\nlink: x", Empty, true),
        ] {
            let text = format!("{lines}\r\n\r\nrest");
            let (answer, count) = parse(&text, method).unwrap().unwrap();
            assert_eq!((answer.length, answer.is_kept), (expected, is_kept), "{lines}");
            assert_eq!(&text[count..], "rest", "{lines}");
            for end in 0..count {
                assert!(parse(&text[..end], method).unwrap().is_none(), "{lines} {end}");
            }
        }
    }

    #[test]
    fn an_answer_that_might_end_in_two_places_is_refused() {
        for (lines, why) in [
            ("content-length: 7\r\ncontent-length: 8", BadAnswer::Length),
            ("content-length: 7, 7", BadAnswer::Length),
            ("content-length: +7", BadAnswer::Length),
            ("content-length: ", BadAnswer::Length),
            ("content-length: 99999999999999999999", BadAnswer::Length),
            (
                "content-length: 7\r\ntransfer-encoding: chunked",
                BadAnswer::Length,
            ),
            ("transfer-encoding: gzip, chunked", BadAnswer::Coding),
            (
                "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
                BadAnswer::Coding,
            ),
            ("transfer-encoding: identity", BadAnswer::Coding),
            ("a: b\r\n c: d", BadAnswer::Form),
            ("a : b", BadAnswer::Form),
            ("a: b\0", BadAnswer::Form),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n");
            assert_eq!(parse(&text, &Method::GET).unwrap_err(), why, "{lines}");
        }
        for text in ["SSH-2.0-OpenSSH\r\n", "HTTP/2.0 200 OK\r\n\r\n", "\0\0\0\0\0\0\0"] {
            assert_eq!(parse(text, &Method::GET).unwrap_err(), BadAnswer::Form, "{text}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(HEADER_MAX_BYTES));
        for text in [many, long] {
            assert_eq!(parse(&text, &Method::GET).unwrap_err(), BadAnswer::Long);
        }
    }

    #[test]
    fn the_length_of_what_does_not_come_is_said_once_or_not_at_all() {
        let (get, head) = (Method::GET, Method::HEAD);
        let twice = "content-length: 7\r\nContent-Length: 7";
        for (method, status, expected) in [
            (&head, "200", vec!["7"]),
            (&get, "304", vec!["7"]),
            (&get, "204", vec![]),
            (&get, "103", vec![]),
        ] {
            let text = format!("HTTP/1.1 {status} x\r\n{twice}\r\n\r\n");
            let (answer, _) = parse(&text, method).unwrap().unwrap();
            let said: Vec<_> = answer
                .response
                .headers()
                .get_all("content-length")
                .iter()
                .collect();
            assert_eq!(said, expected, "{status}");
            assert_eq!((answer.length, answer.is_kept), (AnswerLength::Empty, true));
        }
        let two = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\ncontent-length: 8\r\n\r\n";
        assert_eq!(parse(two, &head).unwrap_err(), BadAnswer::Length);
    }

    #[test]
    fn a_target_without_a_path_gets_one() {
        for (target, line) in [
            ("http://h?b=c", "GET /?b=c HTTP/1.1\r\n"),
            ("http://h", "GET / HTTP/1.1\r\n"),
            ("*", "GET * HTTP/1.1\r\n"),
        ] {
            let parts = Request::get(target).body(()).unwrap().into_parts().0;
            let mut out = Vec::new();
            write(&parts, RequestLength::Empty, &mut out);
            assert!(
                out.starts_with(line.as_bytes()),
                "{target}: {}",
                out.escape_ascii()
            );
        }
    }

    #[test]
    fn a_request_says_once_where_it_ends() {
        let request = Request::post("/a?b=c")
            .header("host", "h")
            .header("content-length", "70")
            .header("transfer-encoding", "gzip");
        let parts = request.body(()).unwrap().into_parts().0;
        for (length, line) in [
            (RequestLength::Empty, "content-length: 0"),
            (RequestLength::Exact(7), "content-length: 7"),
            (RequestLength::Chunked, "transfer-encoding: chunked"),
        ] {
            let mut out = Vec::new();
            write(&parts, length, &mut out);
            let expected = format!("POST /a?b=c HTTP/1.1\r\nhost: h\r\n{line}\r\n\r\n");
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let parts = Request::get("/").body(()).unwrap().into_parts().0;
        let mut out = Vec::new();
        write(&parts, RequestLength::Empty, &mut out);
        assert_eq!(out, b"GET / HTTP/1.1\r\n\r\n");
    }
}
