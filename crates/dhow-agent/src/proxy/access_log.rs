//! The access log: a line for each request of the endpoints that ask for it, in the proxy's log.

use std::sync::{Arc, OnceLock};

use super::log_queue::LogQueue;

/// Where lines are put; clones are the same. The thread begins with the first line.
#[derive(Clone, Default)]
pub struct AccessLog(Arc<OnceLock<Option<LogQueue>>>);

impl AccessLog {
    pub fn write(&self, line: String) {
        // Without a thread nothing is written: requests are served all the same.
        let log = self
            .0
            .get_or_init(|| LogQueue::start("access", std::io::stderr()).ok());
        if let Some(log) = log {
            log.write(line);
        }
    }
}
