//! The API over its Unix socket, without the command line in between.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::PATIENCE;

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// One request on a connection of its own.
pub fn ask(socket: &Path, method: &str, path: &str, media_type: &str, body: &[u8]) -> std::io::Result<Reply> {
    let headers = [("Content-Type", media_type)];
    ask_with(socket, method, path, &headers, body, PATIENCE)
}

/// The same with headers of the caller's, for one who does not wait for long.
pub fn ask_with(
    socket: &Path,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    patience: Duration,
) -> std::io::Result<Reply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("Content-Length: {}\r\n\r\n", body.len());
    // In one piece: a server that refuses by the head alone may have hung up before a second one.
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let broken = || std::io::Error::other("no HTTP answer");
    let head_end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let head_end = head_end.ok_or_else(broken)?;
    let head = std::str::from_utf8(&answer[..head_end]).map_err(|_| broken())?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    assert!(!head.to_ascii_lowercase().contains("transfer-encoding"), "{head}");
    Ok(Reply {
        status: status.ok_or_else(broken)?,
        body: answer[head_end + 4..].to_vec(),
    })
}
