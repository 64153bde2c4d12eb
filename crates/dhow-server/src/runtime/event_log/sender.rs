//! The sending end of the event log: it never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};

use crate::runtime::event::{Event, EventRecord};
use crate::runtime::limits::{EVENT_CHUNK_RECORDS, EVENT_CHUNKS_MAX};

#[derive(Debug)]
pub(in crate::runtime) enum Message {
    /// Events of applied entries, at most [`EVENT_CHUNK_RECORDS`].
    Applied(Vec<Arc<EventRecord>>),
    /// Something that came from no entry.
    Note(Event),
    /// Answered once everything before it is on disk.
    Flush(oneshot::Sender<()>),
}

/// Hands events to the event log; clones hand to the same.
#[derive(Clone, Debug)]
pub struct EventLogSender {
    messages: mpsc::Sender<Message>,
    /// Events that found no room and are not told of yet.
    lost: Arc<AtomicU64>,
}

/// Makes both ends.
pub(in crate::runtime) fn channel() -> (EventLogSender, (mpsc::Receiver<Message>, Arc<AtomicU64>)) {
    let (messages, receiver) = mpsc::channel(EVENT_CHUNKS_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let sender = EventLogSender {
        messages,
        lost: Arc::clone(&lost),
    };
    (sender, (receiver, lost))
}

impl EventLogSender {
    /// Tells of something that is not in the log of commands.
    pub fn note(&self, event: Event) {
        if self.messages.try_send(Message::Note(event)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands over the events of applied entries, in order.
    pub(in crate::runtime) fn applied(&self, records: &[Arc<EventRecord>]) {
        for chunk in records.chunks(EVENT_CHUNK_RECORDS) {
            if self.messages.try_send(Message::Applied(chunk.to_vec())).is_err() {
                self.lost.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            }
        }
    }

    /// Waits until everything before this is on disk, or the writer has ended.
    pub(in crate::runtime) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.messages.send(Message::Flush(done)).await.is_ok() {
            // A writer that has ended has written what it had.
            let _ = flushed.await;
        }
    }
}
