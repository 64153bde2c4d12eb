//! Reads on as lines come, across rotation.

use std::io;
use std::time::Duration;

use super::reader::{LogFilter, LogPage, LogPosition};
use super::source::LogSource;

/// How often a follower looks for new lines. A poll of one listing and one read costs microseconds, and
/// unlike file notification it needs nothing of which a host has only 128.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// An endless reader. Whoever drops it ends it; whether the replica still runs is the caller's to know.
pub struct LogFollow {
    source: LogSource,
    next: LogPosition,
    filter: LogFilter,
}

impl LogFollow {
    pub(super) fn new(source: LogSource, next: LogPosition, filter: LogFilter) -> Self {
        Self { source, next, filter }
    }

    /// Where the next page starts: enough to go on later.
    pub fn position(&self) -> LogPosition {
        self.next
    }

    /// The next page with lines in it. Cancel-safe: a page that was not returned is read again.
    pub async fn next_page(&mut self) -> io::Result<LogPage> {
        loop {
            let page = self.source.page(self.next, &self.filter).await?;
            self.next = page.next;
            if !page.lines.is_empty() || page.files_missed > 0 {
                return Ok(page);
            }
            if page.at_end {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        }
    }
}
