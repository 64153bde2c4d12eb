//! The output of replicas for a reader: their last lines in order of time, then what comes, also from replicas that
//! appear while somebody reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dhow_core::ids::{DeploymentName, ReplicaName};
use dhow_driver::driver::LogSource;
use dhow_driver::logs::{LogFilter, LogLine, LogPosition};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::drivers::Drivers;
use crate::last_words::LastWords;

/// Lines that wait for their reader: 256 of 16 KiB at most are 4 MiB, then reading pauses.
const LINES_MAX: usize = 256;

/// Which lines are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    pub deployment: DeploymentName,
    /// A service's name or a replica's id; everything of the deployment without it.
    pub name: Option<String>,
    /// The last lines of each replica to begin with; everything that is kept where none is given.
    pub tail: Option<usize>,
    pub follow: bool,
    /// Only lines after this moment, in microseconds since 1970.
    pub since_us: Option<u64>,
    /// Also of replicas that failed and have been removed since.
    pub removed: bool,
}

impl LogQuery {
    fn wants(&self, replica: &ReplicaName) -> bool {
        if replica.deployment != self.deployment {
            return false;
        }
        let Some(name) = &self.name else { return true };
        replica.service.as_str() == name || replica.id() == *name
    }

    fn filter(&self) -> LogFilter {
        LogFilter {
            since_us: self.since_us,
            ..LogFilter::default()
        }
    }
}

/// A line and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaLine {
    pub replica: ReplicaName,
    pub line: LogLine,
}

pub fn read(
    drivers: Drivers,
    last_words: LastWords,
    names: watch::Receiver<Arc<BTreeSet<ReplicaName>>>,
    query: LogQuery,
) -> mpsc::Receiver<ReplicaLine> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    let reader = Reader {
        drivers,
        names,
        query,
        lines: sender,
    };
    tokio::spawn(reader.run(last_words));
    receiver
}

struct Reader {
    drivers: Drivers,
    names: watch::Receiver<Arc<BTreeSet<ReplicaName>>>,
    query: LogQuery,
    lines: mpsc::Sender<ReplicaLine>,
}

impl Reader {
    async fn run(mut self, last_words: LastWords) {
        let lines = self.lines.clone();
        // Whoever stops listening ends it, also while nothing is said.
        tokio::select! {
            () = lines.closed() => {}
            () = self.read(last_words) => {}
        }
    }

    async fn read(&mut self, last_words: LastWords) {
        let names = self.names.borrow_and_update().clone();
        let (begun, positions) = self.beginning(&names, &last_words).await;
        for line in begun {
            if self.lines.send(line).await.is_err() {
                return;
            }
        }
        if self.query.follow {
            self.follow(positions).await;
        }
    }

    /// The lines to begin with, in order of time, and where each replica goes on.
    async fn beginning(
        &self,
        names: &BTreeSet<ReplicaName>,
        last_words: &LastWords,
    ) -> (Vec<ReplicaLine>, BTreeMap<ReplicaName, (LogSource, LogPosition)>) {
        let mut lines = Vec::new();
        let mut positions = BTreeMap::new();
        for name in names.iter().filter(|name| self.query.wants(name)) {
            let Some(source) = self.source(name).await else {
                continue;
            };
            let (some, next) = self.tail(&source).await;
            lines.extend(some.into_iter().map(|line| ReplicaLine {
                replica: name.clone(),
                line,
            }));
            positions.insert(name.clone(), (source, next));
        }
        if self.query.removed {
            let gone = last_words.matching(|name| self.query.wants(name) && !names.contains(name));
            for (replica, words) in gone {
                let skip = words.len().saturating_sub(self.query.tail.unwrap_or(usize::MAX));
                lines.extend(words.into_iter().skip(skip).map(|line| ReplicaLine {
                    replica: replica.clone(),
                    line,
                }));
            }
        }
        lines.sort_by_key(|line| line.line.at_us);
        (lines, positions)
    }

    async fn source(&self, name: &ReplicaName) -> Option<LogSource> {
        let driver = self.drivers.having(name).await?;
        driver.logs(name).await.ok()
    }

    /// The last lines of one, at most what fits on a screen or into memory.
    async fn tail(&self, source: &LogSource) -> (Vec<LogLine>, LogPosition) {
        let wanted = self
            .query
            .tail
            .unwrap_or(usize::MAX)
            .min(LogSource::TAIL_MAX_LINES);
        let mut lines = Vec::new();
        let mut position = source.locate_tail(wanted).await.unwrap_or_default();
        while let Ok(page) = source.page(position, &self.query.filter()).await {
            lines.extend(page.lines);
            position = page.next;
            if page.at_end || lines.len() >= LogSource::TAIL_MAX_LINES {
                break;
            }
        }
        (lines, position)
    }

    async fn follow(&mut self, positions: BTreeMap<ReplicaName, (LogSource, LogPosition)>) {
        let mut followed: BTreeSet<ReplicaName> = positions.keys().cloned().collect();
        let mut readers = JoinSet::new();
        for (name, (source, position)) in positions {
            readers.spawn(follow_one(
                name,
                source,
                position,
                self.query.filter(),
                self.lines.clone(),
            ));
        }
        loop {
            let names = self.names.borrow_and_update().clone();
            followed.retain(|name| names.contains(name));
            for name in names.iter().filter(|name| self.query.wants(name)) {
                if followed.contains(name) {
                    continue;
                }
                // One that has not begun has no log yet: it is looked at again below.
                if let Some(source) = self.source(name).await {
                    followed.insert(name.clone());
                    let (lines, filter) = (self.lines.clone(), self.query.filter());
                    readers.spawn(follow_one(
                        name.clone(),
                        source,
                        LogPosition::default(),
                        filter,
                        lines,
                    ));
                }
            }
            const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(500);
            tokio::select! {
                changed = self.names.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
            while readers.try_join_next().is_some() {}
        }
    }
}

async fn follow_one(
    name: ReplicaName,
    source: LogSource,
    from: LogPosition,
    filter: LogFilter,
    lines: mpsc::Sender<ReplicaLine>,
) {
    let mut follow = source.follow(from, filter);
    while let Ok(page) = follow.next_page().await {
        for line in page.lines {
            let replica = name.clone();
            if lines.send(ReplicaLine { replica, line }).await.is_err() {
                return;
            }
        }
    }
}
