//! The event log writer: one task that puts events in order, writes them where there is a store, and shows them to
//! those who follow. Without a store it only shows them; it never blocks anybody, and what it cannot take is
//! counted and told as a gap.
//!
//! Fed by the reducer with the events of applied entries and by others with notes such as alarms. It must never
//! decide anything: a lost event log costs no state.

mod files;
mod reader;
mod sender;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};

pub use reader::{EventReader, EventsGone, ReadEventsError};
pub use sender::EventLogSender;
pub(super) use sender::{Message, channel};
pub use store::{EventStore, EventStoreError};

use super::event::{Event, EventId, EventKind, EventRecord};
use super::event_hub::EventHub;
use super::limits::EVENT_CHUNKS_MAX;
use super::shutdown::ShutdownToken;
use crate::clock::Clock;

/// See the module.
pub(super) struct EventLogWriter {
    messages: mpsc::Receiver<Message>,
    lost: Arc<AtomicU64>,
    store: Option<EventStore>,
    hub: EventHub,
    clock: Arc<dyn Clock>,
    /// The last record, so that notes get a place behind it and repeated ones are left out.
    last: EventId,
    last_time: dhow_core::time::ClusterTime,
    /// The last failure that was logged, so that a full disk does not fill the log too.
    told: Option<String>,
}

impl EventLogWriter {
    pub fn new(
        (messages, lost): (mpsc::Receiver<Message>, Arc<AtomicU64>),
        store: Option<EventStore>,
        hub: EventHub,
        clock: Arc<dyn Clock>,
        last: EventId,
    ) -> Self {
        Self {
            messages,
            lost,
            store,
            hub,
            clock,
            last,
            last_time: dhow_core::time::ClusterTime::default(),
            told: None,
        }
    }

    /// Writes what a replay found and the store missed, then runs until the reducer has ended and everything that
    /// it sent is written.
    pub async fn run(mut self, replayed: Vec<Arc<EventRecord>>, mut token: ShutdownToken) {
        self.take(vec![Message::Applied(replayed)]).await;
        let mut waiting = Vec::with_capacity(EVENT_CHUNKS_MAX);
        loop {
            tokio::select! {
                biased;
                count = self.messages.recv_many(&mut waiting, EVENT_CHUNKS_MAX) => {
                    if count == 0 {
                        return;
                    }
                }
                () = token.ended() => break,
            }
            self.take(std::mem::take(&mut waiting)).await;
        }
        self.messages.close();
        while let Ok(message) = self.messages.try_recv() {
            waiting.push(message);
        }
        self.take(waiting).await;
        self.sync().await;
    }

    async fn take(&mut self, messages: Vec<Message>) {
        let mut records = Vec::new();
        let mut flushes: Vec<oneshot::Sender<()>> = Vec::new();
        for message in messages {
            match message {
                Message::Applied(applied) => {
                    for record in applied {
                        if record.id() > self.last {
                            (self.last, self.last_time) = (record.id(), record.time_ms);
                            records.push(record);
                        }
                    }
                }
                Message::Note(event) => records.push(self.note(event)),
                Message::Flush(done) => flushes.push(done),
            }
        }
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let gap = Event::new(EventKind::Gap).with_message(format!("{lost} events were not written"));
            records.push(self.note(gap));
        }
        self.write(records).await;
        if !flushes.is_empty() {
            self.sync().await;
        }
        for done in flushes {
            // Whoever asked may have gone.
            let _ = done.send(());
        }
    }

    fn note(&mut self, event: Event) -> Arc<EventRecord> {
        self.last = self.last.next_part();
        Arc::new(EventRecord {
            revision: self.last.revision,
            part: self.last.part,
            time_ms: self.last_time,
            wall_unix_ms: Some(self.clock.wall_unix_ms()),
            event,
        })
    }

    async fn write(&mut self, records: Vec<Arc<EventRecord>>) {
        if records.is_empty() {
            return;
        }
        let shown = records.clone();
        let count = records.len() as u64;
        let written = self.with_store(move |store| store.append(&records)).await;
        if let Err(error) = written {
            self.tell(&error);
            self.lost.fetch_add(count, Ordering::Relaxed);
        }
        self.hub.publish(shown);
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

#[cfg(test)]
mod tests;
