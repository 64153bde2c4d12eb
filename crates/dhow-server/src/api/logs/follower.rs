//! Reads the logs of replicas on several nodes as one, and picks up replicas that appear later.

use std::collections::{BTreeMap, BTreeSet};

use dhow_core::ids::{NodeId, ReplicaKey};
use dhow_wire::api::{LogRecord, LogStream};
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll, iter};
use tokio::time::Instant;

use super::tail::Tail;
use crate::api::limits::{LOG_LOOK_AGAIN, LOG_TAIL_MAX, LOG_TAIL_TIMEOUT};
use crate::net::node_door::{DoorError, LineFilter, LogItem, LogItems, LogQuery};
use crate::plane::services::{SelectedReplica, ServiceManager, select};

/// What comes from one node's stream.
enum Piece {
    Item(Result<LogItem, DoorError>),
    /// The stream is over.
    End,
}

/// A stream and whose it is.
struct Source {
    node: NodeId,
    keys: Vec<ReplicaKey>,
    items: LogItems,
}

/// One reader's log stream: it opens the logs of the replicas that were selected, on whichever nodes they are, and of
/// those that appear later.
pub(super) struct Follower {
    manager: ServiceManager,
    deployment: String,
    within: Option<String>,
    follow: bool,
    lines: LineFilter,
    /// Replicas whose logs are or were read.
    opened: BTreeSet<ReplicaKey>,
    /// Of those, the ones whose stream broke: they go on where they are.
    broken: BTreeSet<ReplicaKey>,
    /// Nodes whose trouble has been told.
    told: BTreeSet<NodeId>,
    streams: SelectAll<BoxStream<'static, (NodeId, Vec<ReplicaKey>, Piece)>>,
    notices: Vec<LogRecord>,
    look_at: Instant,
}

impl Follower {
    pub fn new(
        manager: ServiceManager,
        deployment: String,
        within: Option<String>,
        follow: bool,
        lines: LineFilter,
    ) -> Self {
        Self {
            manager,
            deployment,
            within,
            follow,
            lines,
            opened: BTreeSet::new(),
            broken: BTreeSet::new(),
            told: BTreeSet::new(),
            streams: SelectAll::new(),
            notices: Vec::new(),
            look_at: Instant::now(),
        }
    }

    /// Says why there is nothing of some replicas, after the lines of the others.
    pub fn tell(&mut self, reasons: Vec<(String, String)>) {
        for (replica, why) in reasons {
            let notice = self.notice(replica, 0, why);
            self.notices.push(notice);
        }
    }

    fn notice(&self, replica: String, node_id: u64, text: String) -> LogRecord {
        LogRecord {
            deployment: self.deployment.clone(),
            replica,
            node_id,
            time_unix_us: self.manager.clock().wall_unix_ms().saturating_mul(1_000),
            stream: LogStream::Notice,
            text,
        }
    }

    /// The last lines of what is there now, in the order of time.
    pub async fn tail(&mut self, selected: Vec<SelectedReplica>, max: usize) -> Vec<LogRecord> {
        let sources = self.open(selected, max).await;
        let mut reads = Vec::new();
        for source in sources {
            reads.push(read_tail(source, max));
        }
        let mut tail = Tail::new(max);
        for (source, records, outcome) in futures_util::future::join_all(reads).await {
            records.into_records().for_each(|record| tail.add(record));
            match outcome {
                Ok(()) => self.take_in(source),
                Err(error) => self.lost(source.node, &source.keys, &error),
            }
        }
        let mut records: Vec<LogRecord> = tail.into_records().collect();
        records.append(&mut self.notices);
        records
    }

    /// The next line; none where there will be none.
    pub async fn next(&mut self) -> Option<LogRecord> {
        loop {
            if let Some(notice) = self.notices.pop() {
                return Some(notice);
            }
            if !self.follow && self.streams.is_empty() {
                return None;
            }
            tokio::select! {
                piece = self.streams.next(), if !self.streams.is_empty() => {
                    if let Some(record) = piece.and_then(|piece| self.take_piece(piece)) {
                        return Some(record);
                    }
                }
                () = tokio::time::sleep_until(self.look_at), if self.follow => {
                    self.look_at = Instant::now() + LOG_LOOK_AGAIN;
                    if self.look().await && self.streams.is_empty() {
                        return None;
                    }
                }
            }
        }
    }

    fn take_piece(&mut self, (node, keys, piece): (NodeId, Vec<ReplicaKey>, Piece)) -> Option<LogRecord> {
        match piece {
            Piece::Item(Ok(LogItem::Record(record))) => {
                self.told.remove(&node);
                Some(record)
            }
            Piece::Item(Ok(LogItem::CaughtUp)) | Piece::End => None,
            Piece::Item(Err(error)) => {
                self.lost(node, &keys, &error);
                None
            }
        }
    }

    /// Opens what has appeared. Whether the deployment is gone.
    async fn look(&mut self) -> bool {
        let state = self.manager.state();
        let Ok(selected) = select(&state, &self.deployment, self.within.as_deref()) else {
            return select(&state, &self.deployment, None).is_err();
        };
        let (again, rest): (Vec<_>, Vec<_>) = selected
            .into_iter()
            .partition(|replica| self.broken.contains(&replica.key));
        for replica in &again {
            self.broken.remove(&replica.key);
            self.opened.remove(&replica.key);
        }
        for (replicas, tail) in [(again, 0), (rest, LOG_TAIL_MAX)] {
            for source in self.open(replicas, tail).await {
                self.take_in(source);
            }
        }
        false
    }

    /// Opens one stream for each node that has replicas which are not read yet.
    async fn open(&mut self, selected: Vec<SelectedReplica>, tail: usize) -> Vec<Source> {
        let mut by_node: BTreeMap<NodeId, Vec<SelectedReplica>> = BTreeMap::new();
        for replica in selected {
            if self.opened.insert(replica.key) {
                by_node.entry(replica.node).or_default().push(replica);
            }
        }
        let mut sources = Vec::new();
        for (node, replicas) in by_node {
            let keys: Vec<ReplicaKey> = replicas.iter().map(|replica| replica.key).collect();
            let query = LogQuery {
                replicas: replicas.into_iter().map(|replica| replica.name).collect(),
                tail: Some(tail),
                follow: self.follow,
                lines: self.lines.clone(),
            };
            match self.manager.door().logs(node, query).await {
                Ok(items) => {
                    // The end of a tail is also the end of what follows it, and is asked for twice.
                    let items = wanted(items, self.lines.clone()).fuse().boxed();
                    sources.push(Source { node, keys, items });
                }
                Err(error) => self.lost(node, &keys, &error),
            }
        }
        sources
    }

    fn take_in(&mut self, source: Source) {
        let Source { node, keys, items } = source;
        let pieces = items.map(Piece::Item).chain(iter([Piece::End]));
        self.streams
            .push(pieces.map(move |piece| (node, keys.clone(), piece)).boxed());
    }

    /// Says so once, and tries again at the next look.
    fn lost(&mut self, node: NodeId, keys: &[ReplicaKey], error: &DoorError) {
        self.broken.extend(keys);
        if !self.told.insert(node) {
            return;
        }
        let replica = self.within.clone().unwrap_or_default();
        let notice = self.notice(replica, node.0, error.to_string());
        self.notices.push(notice);
    }
}

/// Leaves out what is not wanted, which a node of an older version has not done.
fn wanted(items: LogItems, lines: LineFilter) -> LogItems {
    let is_wanted = move |item: &Result<LogItem, DoorError>| match item {
        Ok(LogItem::Record(record)) => lines.wants(record.time_unix_us, &record.text),
        Ok(LogItem::CaughtUp) | Err(_) => true,
    };
    items
        .filter(move |item| std::future::ready(is_wanted(item)))
        .boxed()
}

/// What a stream has now: up to its mark, its end, or the time that it is given.
async fn read_tail(mut source: Source, max: usize) -> (Source, Tail, Result<(), DoorError>) {
    let mut tail = Tail::new(max);
    let read = async {
        while let Some(item) = source.items.next().await {
            match item? {
                LogItem::Record(record) => tail.add(record),
                LogItem::CaughtUp => break,
            }
        }
        Ok(())
    };
    // A node that is slow is followed all the same.
    let outcome = tokio::time::timeout(LOG_TAIL_TIMEOUT, read)
        .await
        .unwrap_or(Ok(()));
    (source, tail, outcome)
}
