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

fn write_line(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
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
    let is_kept = is_kept(response.version(), &headers);
    let length = length(method, response.status(), response.version(), &mut headers)?;
    *response.headers_mut() = headers;
    let is_kept = is_kept && length != AnswerLength::UntilClose;
    Ok(Some((
        AnswerHead {
            response,
            length,
            is_kept,
        },
        count,
    )))
}

fn is_kept(version: Version, headers: &HeaderMap) -> bool {
    let says = |wanted: &str| {
        let values = headers.get_all(header::CONNECTION).iter();
        let words = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        words.map(str::trim).any(|word| word.eq_ignore_ascii_case(wanted))
    };
    match version {
        Version::HTTP_10 => says("keep-alive"),
        _ => !says("close"),
    }
}

/// As the RFC has it; what it leaves to the reader's mercy is refused.
fn length(
    method: &Method,
    status: StatusCode,
    version: Version,
    headers: &mut HeaderMap,
) -> Result<AnswerLength, BadAnswer> {
    if status == StatusCode::NO_CONTENT || status.is_informational() {
        // There is nothing whose length it could be, and some clients break off where they are told one.
        headers.remove(header::CONTENT_LENGTH);
        return Ok(AnswerLength::Empty);
    }
    if method == Method::HEAD || status == StatusCode::NOT_MODIFIED {
        said_length(headers)?;
        return Ok(AnswerLength::Empty);
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let is_chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !is_chunked || codings.next().is_some() || version == Version::HTTP_10 {
            return Err(BadAnswer::Coding);
        }
        return match headers.contains_key(header::CONTENT_LENGTH) {
            true => Err(BadAnswer::Length),
            false => Ok(AnswerLength::Chunked),
        };
    }
    let said = said_length(headers)?;
    Ok(said.map_or(AnswerLength::UntilClose, AnswerLength::Exact))
}

/// The length that headers say, where they say one. It may be said again and is passed on once.
fn said_length(headers: &mut HeaderMap) -> Result<Option<u64>, BadAnswer> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else {
        return Ok(None);
    };
    if lengths.any(|other| other != first) {
        return Err(BadAnswer::Length);
    }
    let digits = first
        .to_str()
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let bytes = digits
        .and_then(|text| text.parse().ok())
        .ok_or(BadAnswer::Length)?;
    let first = first.clone();
    headers.insert(header::CONTENT_LENGTH, first);
    Ok(Some(bytes))
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
