//! The output of replicas for a reader: their last lines in order of time, then what comes.

use std::collections::VecDeque;
use std::time::Duration;

use dhow_core::ids::{NodeId, ReplicaName};
use dhow_driver::driver::LogSource;
use dhow_driver::logs::{LogFilter, LogLine, LogPosition, Stream};
use dhow_wire::api::{LogRecord, LogStream};
use dhow_wire::door::{LineFilter, LogItem, LogQuery};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::drivers::Drivers;
use crate::last_words::LastWords;
use crate::limits::LOG_TAIL_LINES_MAX;

/// Lines that wait for their reader: 256 of 16 KiB at most are 4 MiB, then reading pauses.
const LINES_MAX: usize = 256;
/// How often a replica that has not begun is asked for its log.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub fn read(
    node: NodeId,
    drivers: Drivers,
    last_words: LastWords,
    query: LogQuery,
) -> mpsc::Receiver<LogItem> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    tokio::spawn(async move {
        let items = sender.clone();
        let reader = Reader {
            node,
            drivers,
            query,
            items: sender,
        };
        // Whoever stops listening ends it, also while nothing is said.
        tokio::select! {
            () = items.closed() => {}
            () = reader.read(last_words) => {}
        }
    });
    receiver
}

#[derive(Clone)]
struct Reader {
    node: NodeId,
    drivers: Drivers,
    query: LogQuery,
    items: mpsc::Sender<LogItem>,
}

/// A replica, and where the reading of its log goes on: from the beginning where the replica has no log yet.
struct LogReading {
    replica: ReplicaName,
    at: Option<(LogSource, LogPosition)>,
}

impl Reader {
    async fn read(&self, last_words: LastWords) {
        let (mut lines, mut places) = (Vec::new(), Vec::new());
        for replica in &self.query.replicas {
            let mut at = None;
            match source(&self.drivers, replica).await {
                Some(source) => {
                    let (some, next) = self.tail(&source).await;
                    lines.extend(some.into_iter().map(|line| (replica, line)));
                    at = Some((source, next));
                }
                None => {
                    let mut words = last_words.of(replica);
                    words.retain(|line| is_wanted(&self.query.lines, line));
                    let skip = words.len().saturating_sub(self.query.tail.unwrap_or(usize::MAX));
                    lines.extend(words.into_iter().skip(skip).map(|line| (replica, line)));
                }
            }
            let replica = replica.clone();
            places.push(LogReading { replica, at });
        }
        lines.sort_by_key(|(_, line)| line.at_us);
        for (replica, line) in lines {
            let record = record(self.node, replica, line);
            if self.items.send(LogItem::Record(record)).await.is_err() {
                return;
            }
        }
        if !self.query.follow || self.items.send(LogItem::CaughtUp).await.is_err() {
            return;
        }
        let mut readers = JoinSet::new();
        for place in places {
            readers.spawn(self.clone().follow(place));
        }
        readers.join_all().await;
    }

    /// The last lines of one, at most what fits into memory.
    async fn tail(&self, source: &LogSource) -> (Vec<LogLine>, LogPosition) {
        let wanted = self.query.tail.unwrap_or(usize::MAX).min(LOG_TAIL_LINES_MAX);
        if wanted > 0 && !self.query.lines.is_open() {
            return match self.lines_of(source).await {
                Some(lines) => self.tail_of_wanted(source, &lines, wanted).await,
                None => (Vec::new(), LogPosition::default()),
            };
        }
        let mut lines = Vec::new();
        let mut position = source.locate_tail(wanted).await.unwrap_or_default();
        while let Ok(page) = source.page(position, &LogFilter::default()).await {
            lines.extend(page.lines);
            position = page.next;
            if page.at_end || lines.len() >= LOG_TAIL_LINES_MAX {
                break;
            }
        }
        (lines, position)
    }

    /// Which lines of one are wanted; none where it had no run before the newest one and that is asked for.
    async fn lines_of(&self, source: &LogSource) -> Option<LineFilter> {
        let asked = &self.query.lines;
        if !asked.previous {
            return Some(asked.clone());
        }
        let run = source.previous_run().await.ok().flatten()?;
        let at = |us: u64| i64::try_from(us).unwrap_or(i64::MAX);
        let (since, until) = (at(run.since_us), at(run.until_us));
        Some(LineFilter {
            since_unix_us: Some(asked.since_unix_us.map_or(since, |asked| asked.max(since))),
            until_unix_us: Some(asked.until_unix_us.map_or(until, |asked| asked.min(until))),
            ..asked.clone()
        })
    }

    /// The last of those that are wanted. Where they begin is known once all that is kept has been looked at.
    async fn tail_of_wanted(
        &self,
        source: &LogSource,
        wanted: &LineFilter,
        count: usize,
    ) -> (Vec<LogLine>, LogPosition) {
        let filter = times_of(wanted);
        let mut lines = VecDeque::new();
        let mut position = LogPosition::default();
        while let Ok(page) = source.page(position, &filter).await {
            for line in page.lines {
                if is_wanted(wanted, &line) {
                    if lines.len() == count {
                        lines.pop_front();
                    }
                    lines.push_back(line);
                }
            }
            position = page.next;
            if page.at_end {
                break;
            }
        }
        (lines.into(), position)
    }

    /// What is written to the log of one from there on.
    async fn follow(self, place: LogReading) {
        let LogReading { replica, at } = place;
        let (source, from) = match at {
            Some(at) => at,
            None => loop {
                match source(&self.drivers, &replica).await {
                    Some(source) => break (source, LogPosition::default()),
                    None => tokio::time::sleep(LOOK_AGAIN).await,
                }
            },
        };
        let mut pages = source.follow(from, times_of(&self.query.lines));
        while let Ok(page) = pages.next_page().await {
            for line in page.lines {
                if !is_wanted(&self.query.lines, &line) {
                    continue;
                }
                let record = record(self.node, &replica, line);
                if self.items.send(LogItem::Record(record)).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// What the log itself can leave out.
fn times_of(lines: &LineFilter) -> LogFilter {
    // Nothing was written before 1970.
    let moment = |time: i64| u64::try_from(time).unwrap_or(0);
    LogFilter {
        since_us: lines.since_unix_us.map(moment),
        until_us: lines.until_unix_us.map(moment),
        stream: None,
    }
}

fn is_wanted(lines: &LineFilter, line: &LogLine) -> bool {
    lines.wants(i64::try_from(line.at_us).unwrap_or(i64::MAX), &line.text)
}

async fn source(drivers: &Drivers, replica: &ReplicaName) -> Option<LogSource> {
    drivers.having(replica).await?.logs(replica).await.ok()
}

fn record(node: NodeId, replica: &ReplicaName, line: LogLine) -> LogRecord {
    LogRecord {
        deployment: replica.deployment.to_string(),
        replica: replica.id(),
        node_id: node.0,
        time_unix_us: i64::try_from(line.at_us).unwrap_or(i64::MAX),
        stream: match line.stream {
            Stream::Stdout => LogStream::Stdout,
            Stream::Stderr => LogStream::Stderr,
            Stream::Notice => LogStream::Notice,
        },
        text: line.text,
    }
}
