//! One line of the access log: begun with a request, written when the last byte of the answer is on its way or the client
//! has gone.

use hyper::StatusCode;
use tokio::time::Instant;

use super::Connection;
use crate::proxy::access_log::AccessLog;
use crate::proxy::routes::Route;

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

/// What stands in the first line of a request, and where it was asked.
pub struct AskedFor<'a> {
    pub host: &'a str,
    pub method: &'a str,
    pub target: &'a str,
    pub version: &'a str,
}

impl AccessEntry {
    pub(super) fn new(connection: &Connection, route: &Route, asked: &AskedFor<'_>) -> Self {
        let AskedFor {
            host,
            method,
            target,
            version,
        } = asked;
        let target: String = target.chars().take(TARGET_CHARS_MAX).collect();
        let asked = format!(
            "access {} {} {host:?} \"{method} {} {version}\"",
            route.id,
            connection.peer.to_str().unwrap_or_default(),
            target.escape_default(),
        );
        Self {
            log: connection.listener.access_log.clone(),
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
