//! The output of replicas for a reader: their last lines in order of time, then what comes.

use std::time::Duration;

use dhow_core::ids::ReplicaName;
use dhow_driver::driver::LogSource;
use dhow_driver::logs::{LogFilter, LogLine, LogPosition};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::drivers::Drivers;
use crate::last_words::LastWords;
use crate::limits::LOG_TAIL_LINES_MAX;

/// Lines that wait for their reader: 256 of 16 KiB at most are 4 MiB, then reading pauses.
const LINES_MAX: usize = 256;
/// How often a replica that has not begun is asked for its log.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Which lines are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    pub replicas: Vec<ReplicaName>,
    /// The last lines of each replica to begin with; as many as are kept, up to a limit, where none is given.
    pub tail: Option<usize>,
    /// Whether to go on with what is written from then on.
    pub follow: bool,
}

/// What a reader of logs gets.
#[derive(Clone, Debug, PartialEq)]
pub enum LogItem {
    Line {
        replica: ReplicaName,
        line: LogLine,
    },
    /// Once, where the reader follows: what comes now is new.
    CaughtUp,
}

pub fn read(drivers: Drivers, last_words: LastWords, query: LogQuery) -> mpsc::Receiver<LogItem> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    tokio::spawn(async move {
        let items = sender.clone();
        let reader = Reader {
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

struct Reader {
    drivers: Drivers,
    query: LogQuery,
    items: mpsc::Sender<LogItem>,
}

/// A replica, and where the reading of its log goes on; from its beginning where it has none yet.
struct Place {
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
                    let words = last_words.of(replica);
                    let skip = words.len().saturating_sub(self.query.tail.unwrap_or(usize::MAX));
                    lines.extend(words.into_iter().skip(skip).map(|line| (replica, line)));
                }
            }
            let replica = replica.clone();
            places.push(Place { replica, at });
        }
        lines.sort_by_key(|(_, line)| line.at_us);
        for (replica, line) in lines {
            let replica = replica.clone();
            if self.items.send(LogItem::Line { replica, line }).await.is_err() {
                return;
            }
        }
        if !self.query.follow || self.items.send(LogItem::CaughtUp).await.is_err() {
            return;
        }
        let mut readers = JoinSet::new();
        for place in places {
            readers.spawn(follow(self.drivers.clone(), place, self.items.clone()));
        }
        readers.join_all().await;
    }

    /// The last lines of one, at most what fits into memory.
    async fn tail(&self, source: &LogSource) -> (Vec<LogLine>, LogPosition) {
        let wanted = self.query.tail.unwrap_or(usize::MAX).min(LOG_TAIL_LINES_MAX);
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
}

async fn source(drivers: &Drivers, replica: &ReplicaName) -> Option<LogSource> {
    drivers.having(replica).await?.logs(replica).await.ok()
}

async fn follow(drivers: Drivers, place: Place, items: mpsc::Sender<LogItem>) {
    let Place { replica, at } = place;
    let (source, from) = match at {
        Some(at) => at,
        None => loop {
            match source(&drivers, &replica).await {
                Some(source) => break (source, LogPosition::default()),
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
        },
    };
    let mut pages = source.follow(from, LogFilter::default());
    while let Ok(page) = pages.next_page().await {
        for line in page.lines {
            let replica = replica.clone();
            if items.send(LogItem::Line { replica, line }).await.is_err() {
                return;
            }
        }
    }
}
