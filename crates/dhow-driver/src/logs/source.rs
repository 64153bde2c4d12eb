//! Where a driver's caller reads a replica's output from, whatever the driver.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::follow::LogFollow;
use super::frame::LogLine;
use super::reader::{LogDir, LogFilter, LogPage, LogPosition};
use super::runs::RunSpan;

/// Lines that a fake replica keeps: enough for any test's tail.
const MEMORY_MAX_LINES: usize = 1_000;
/// Lines in one page of an in-memory log, in place of the bytes of a file's page.
const MEMORY_PAGE_LINES: usize = 500;

/// Output in memory, for drivers that run nothing.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    lines: Arc<Mutex<MemoryLines>>,
}

#[derive(Debug, Default)]
struct MemoryLines {
    /// How many lines were dropped before the first that is kept.
    first: u64,
    kept: VecDeque<LogLine>,
}

impl MemoryLog {
    pub fn push(&self, line: LogLine) {
        // A panic elsewhere cannot leave the queue half changed.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.kept.len() == MEMORY_MAX_LINES {
            lines.kept.pop_front();
            lines.first += 1;
        }
        lines.kept.push_back(line);
    }

    fn locate_tail(&self, wanted: usize) -> LogPosition {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = lines.kept.len().saturating_sub(wanted) as u64;
        LogPosition {
            file: 0,
            offset_bytes: lines.first + skipped,
        }
    }

    fn page(&self, from: LogPosition, filter: &LogFilter) -> LogPage {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = usize::try_from(from.offset_bytes.saturating_sub(lines.first)).unwrap_or(usize::MAX);
        let some: Vec<LogLine> = lines
            .kept
            .iter()
            .skip(skip)
            .take(MEMORY_PAGE_LINES)
            .cloned()
            .collect();
        let end = lines.first + lines.kept.len() as u64;
        let next = from.offset_bytes.max(lines.first) + some.len() as u64;
        LogPage {
            lines: some.into_iter().filter(|line| filter.wants(line)).collect(),
            next: LogPosition {
                file: 0,
                offset_bytes: next,
            },
            at_end: next >= end,
            files_missed: 0,
        }
    }
}

/// A replica's output.
#[derive(Clone, Debug)]
pub enum LogSource {
    Files(LogDir),
    Memory(MemoryLog),
}

impl LogSource {
    /// Where the last `lines` lines begin; with 0 the end.
    pub async fn locate_tail(&self, lines: usize) -> io::Result<LogPosition> {
        match self {
            Self::Files(dir) => {
                let dir = dir.clone();
                blocking(move || dir.locate_tail(lines)).await
            }
            Self::Memory(log) => Ok(log.locate_tail(lines)),
        }
    }

    /// The time of the run before the newest one, where it is known.
    pub async fn previous_run(&self) -> io::Result<Option<RunSpan>> {
        match self {
            Self::Files(dir) => {
                let dir = dir.clone();
                blocking(move || dir.previous_run()).await
            }
            Self::Memory(_) => Ok(None),
        }
    }

    /// Some lines from a position on.
    pub async fn page(&self, from: LogPosition, filter: &LogFilter) -> io::Result<LogPage> {
        match self {
            Self::Files(dir) => {
                let (dir, filter) = (dir.clone(), filter.clone());
                blocking(move || dir.page(from, &filter)).await
            }
            Self::Memory(log) => Ok(log.page(from, filter)),
        }
    }

    /// The last `lines` lines, however many pages that takes: for a screen, so `lines` is cut to
    /// [`Self::TAIL_MAX_LINES`].
    pub async fn tail(&self, lines: usize) -> io::Result<Vec<LogLine>> {
        let mut position = self.locate_tail(lines.min(Self::TAIL_MAX_LINES)).await?;
        let mut tail = Vec::new();
        loop {
            let page = self.page(position, &LogFilter::default()).await?;
            tail.extend(page.lines);
            if page.at_end || tail.len() >= Self::TAIL_MAX_LINES {
                return Ok(tail);
            }
            position = page.next;
        }
    }

    /// What [`Self::tail`] gives at most: 1,000 lines of 16 KiB are 16 MiB. Who wants more reads pages.
    pub const TAIL_MAX_LINES: usize = 1_000;

    /// Pages from a position on, waiting for what is yet to come.
    pub fn follow(&self, from: LogPosition, filter: LogFilter) -> LogFollow {
        LogFollow::new(self.clone(), from, filter)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}
