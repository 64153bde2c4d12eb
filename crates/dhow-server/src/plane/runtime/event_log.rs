//! The event log writer: one task that puts events in order, writes them where there is a store, and shows them to
//! those who follow. Without a store it only shows them; it never blocks anybody, and what it cannot take is
//! counted and told as a gap.
//!
//! Fed by the reducer with the events of applied entries and by others with notes such as alarms. It must never
//! decide anything: a lost event log costs no state.

mod files;
mod reader;
mod sender;
mod series;
mod store;

use std::sync::Arc;

use dhow_core::time::ClusterTime;
use tokio::sync::{mpsc, oneshot};

pub use reader::{EventReader, EventsGone, ReadEventsError};
pub use sender::EventLogSender;
pub(super) use sender::{Backlog, Message, channel};
pub use store::{EventStore, EventStoreError};

use super::event::{Event, EventId, EventKind, EventRecord};
use super::event_hub::EventHub;
use super::limits::{EVENT_MESSAGES_MAX, EVENT_WRITE_EVERY};
use super::shutdown::ShutdownToken;
use crate::clock::Clock;

/// Events that are missing on disk.
#[derive(Clone, Copy)]
struct Unwritten {
    /// The place of the first one, which the note of the gap takes.
    at: EventId,
    count: u64,
}

/// The task that numbers events, writes them to the event store and shows them to followers.
pub(super) struct EventLogWriter {
    messages: mpsc::Receiver<Message>,
    backlog: Arc<Backlog>,
    store: Option<EventStore>,
    hub: EventHub,
    clock: Arc<dyn Clock>,
    /// The last record, so that notes get a place behind it and repeated ones are left out.
    last: EventId,
    last_time: ClusterTime,
    /// The state was replaced by one at a lower revision: what comes from now on is news, wherever its revision stands.
    is_replaced: bool,
    /// Events that followers have seen and that could not be written.
    unwritten: Option<Unwritten>,
    /// The last failure that was logged, so that a full disk does not fill the log too.
    told: Option<String>,
}

impl EventLogWriter {
    pub fn new(
        (messages, backlog): (mpsc::Receiver<Message>, Arc<Backlog>),
        store: Option<EventStore>,
        hub: EventHub,
        clock: Arc<dyn Clock>,
        last: EventId,
    ) -> Self {
        Self {
            messages,
            backlog,
            store,
            hub,
            clock,
            last,
            last_time: ClusterTime::default(),
            is_replaced: false,
            unwritten: None,
            told: None,
        }
    }

    /// Writes what a replay found and the store missed, then runs until the reducer has ended and everything that
    /// it sent is written.
    pub async fn run(mut self, replayed: Vec<Arc<EventRecord>>, mut token: ShutdownToken) {
        if !replayed.is_empty() {
            self.take(vec![Message::Applied(replayed)]).await;
        }
        let mut waiting = Vec::new();
        loop {
            tokio::select! {
                biased;
                count = self.messages.recv_many(&mut waiting, EVENT_MESSAGES_MAX) => {
                    if count == 0 {
                        return;
                    }
                }
                () = token.ended() => break,
            }
            self.take_from_backlog(std::mem::take(&mut waiting)).await;
            // What comes meanwhile is written in one go.
            tokio::select! {
                biased;
                () = token.ended() => break,
                () = self.backlog.hurried() => {}
                () = tokio::time::sleep(EVENT_WRITE_EVERY) => {}
            }
        }
        self.messages.close();
        while let Ok(message) = self.messages.try_recv() {
            waiting.push(message);
        }
        self.take_from_backlog(waiting).await;
        self.sync().await;
    }

    async fn take_from_backlog(&mut self, messages: Vec<Message>) {
        messages.iter().for_each(|message| self.backlog.took(message));
        self.take(messages).await;
    }

    async fn take(&mut self, messages: Vec<Message>) {
        let mut records = Vec::new();
        let mut waiting: Vec<oneshot::Sender<()>> = Vec::new();
        let mut is_flush = false;
        for message in messages {
            match message {
                Message::Applied(applied) => {
                    records.extend(applied.into_iter().filter_map(|record| self.put(record)));
                }
                Message::Installed(found) => {
                    self.is_replaced |= found.first().is_some_and(|gap| gap.id() <= self.last);
                    records.extend(found.into_iter().filter_map(|record| self.put(record)));
                }
                Message::Note(event) => records.push(self.note(event)),
                Message::Settle(done) => waiting.push(done),
                Message::Flush(done) => {
                    is_flush = true;
                    waiting.push(done);
                }
            }
        }
        let lost = self.backlog.take_lost();
        if lost > 0 {
            records.push(self.note(gap(lost)));
        }
        self.write(records).await;
        if is_flush {
            self.sync().await;
        }
        for done in waiting {
            // Whoever asked may have gone.
            let _ = done.send(());
        }
    }

    /// Gives a record its place. What a replay tells again is left out; a state from another half of a divided cluster
    /// may stand at lower revisions than this one did, and what comes of it has its place behind all that was.
    fn put(&mut self, record: Arc<EventRecord>) -> Option<Arc<EventRecord>> {
        if record.id() > self.last {
            (self.last, self.last_time) = (record.id(), record.time_ms);
            return Some(record);
        }
        if !self.is_replaced {
            return None;
        }
        self.last = self.last.next_part();
        self.last_time = record.time_ms;
        Some(Arc::new(EventRecord {
            revision: self.last.revision,
            part: self.last.part,
            ..EventRecord::clone(&record)
        }))
    }

    fn note(&mut self, event: Event) -> Arc<EventRecord> {
        self.last = self.last.next_part();
        self.record(self.last, event)
    }

    fn record(&self, at: EventId, event: Event) -> Arc<EventRecord> {
        Arc::new(EventRecord {
            revision: at.revision,
            part: at.part,
            time_ms: self.last_time,
            wall_unix_ms: Some(self.clock.wall_unix_ms()),
            event,
        })
    }

    async fn write(&mut self, records: Vec<Arc<EventRecord>>) {
        let Some(first) = records.first() else {
            return;
        };
        let (at, count) = (first.id(), records.len() as u64);
        let mut lines: Vec<_> = self.gap_record().into_iter().collect();
        lines.extend(records.iter().cloned());
        match self.with_store(move |store| store.append(&lines)).await {
            Ok(()) => self.unwritten = None,
            Err(error) => {
                self.tell(&error);
                self.unwritten.get_or_insert(Unwritten { at, count: 0 }).count += count;
            }
        }
        self.hub.publish(records);
    }

    /// The record of a gap that stands in the store for the events that it missed, as soon as it takes something again.
    fn gap_record(&self) -> Option<Arc<EventRecord>> {
        let Unwritten { at, count } = self.unwritten?;
        Some(self.record(at, gap(count)))
    }

    async fn sync(&mut self) {
        if let Err(error) = self.with_store(EventStore::sync).await {
            self.tell(&error);
        }
    }

    /// Does something with the store on a thread that may block.
    async fn with_store(
        &mut self,
        work: impl FnOnce(&mut EventStore) -> Result<(), EventStoreError> + Send + 'static,
    ) -> Result<(), EventStoreError> {
        let Some(mut store) = self.store.take() else {
            return Ok(());
        };
        let ended = tokio::task::spawn_blocking(move || {
            let result = work(&mut store);
            (store, result)
        })
        .await;
        match ended {
            Ok((store, result)) => {
                self.store = Some(store);
                result
            }
            // The thread panicked, or the process is ending: the store is gone, and events are only shown.
            Err(_) => Err(EventStoreError::Gone),
        }
    }

    fn tell(&mut self, error: &EventStoreError) {
        let text = error.to_string();
        if self.told.as_ref() != Some(&text) {
            tracing::error!(error = error as &dyn std::error::Error, "events are not written");
            self.told = Some(text);
        }
    }
}

fn gap(count: u64) -> Event {
    Event::new(EventKind::Gap).with_message(format!("{count} events were not written"))
}

#[cfg(test)]
mod tests;
