//! One line of the access log: begun with a request, written when the last byte of the answer is on its way or the client
//! has gone.

use hyper::http::request::Parts;
use hyper::{StatusCode, Version};
use tokio::time::Instant;

use crate::proxy::access_log::AccessLog;

/// The longest target of a request that a line repeats.
const TARGET_CHARS_MAX: usize = 1024;

/// A request that is noted.
pub struct AccessEntry {
    log: AccessLog,
    begin: Instant,
    /// The endpoint, the client and what it asked.
    asked: String,
    pub status: StatusCode,
    pub backend: Option<String>,
    pub bytes: u64,
}

impl AccessEntry {
    pub fn new(log: AccessLog, endpoint: &str, client: &str, host: &str, parts: &Parts) -> Self {
        let target: String = parts.uri.to_string().chars().take(TARGET_CHARS_MAX).collect();
        let version = match parts.version {
            Version::HTTP_2 => "HTTP/2",
            Version::HTTP_10 => "HTTP/1.0",
            _ => "HTTP/1.1",
        };
        let asked = format!(
            "access {endpoint} {client} {host:?} \"{} {} {version}\"",
            parts.method,
            target.escape_default(),
        );
        Self {
            log,
            begin: Instant::now(),
            asked,
            status: StatusCode::OK,
            backend: None,
            bytes: 0,
        }
    }
}

impl Drop for AccessEntry {
    fn drop(&mut self) {
        let line = format!(
            "{} {} {} {}ms {}",
            self.asked,
            self.status.as_u16(),
            self.bytes,
            self.begin.elapsed().as_millis(),
            self.backend.as_deref().unwrap_or("-")
        );
        self.log.write(line);
    }
}
