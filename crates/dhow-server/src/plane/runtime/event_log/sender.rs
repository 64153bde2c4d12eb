//! The sending end of the event log: it never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc, oneshot};

use crate::plane::runtime::event::{Event, EventRecord};
use crate::plane::runtime::limits::{EVENT_CHUNK_RECORDS, EVENT_MESSAGES_MAX, EVENTS_WAITING_MAX};

/// What the event log writer receives.
#[derive(Debug)]
pub(in crate::plane::runtime) enum Message {
    /// Events of applied entries, at most [`EVENT_CHUNK_RECORDS`].
    Applied(Vec<Arc<EventRecord>>),
    /// What differs in a state that came as a whole. No event from before it follows it.
    Installed(Vec<Arc<EventRecord>>),
    /// Something that came from no entry.
    Note(Event),
    /// Answered once everything before it is written and shown.
    Settle(oneshot::Sender<()>),
    /// Answered once everything before it is on disk.
    Flush(oneshot::Sender<()>),
}

/// What waits for the writer, and what found no room.
#[derive(Debug, Default)]
pub(in crate::plane::runtime) struct Backlog {
    records: AtomicUsize,
    /// Events that were lost and are not told of yet.
    lost: AtomicU64,
    /// Wakes the writer: a reader waits for events that are to be written.
    hurry: Notify,
}

impl Backlog {
    /// Makes room for what a message brings, where there is some.
    fn add(&self, records: usize) -> bool {
        let has_room = |waiting: usize| Some(waiting + records).filter(|all| *all <= EVENTS_WAITING_MAX);
        self.records
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room)
            .is_ok()
    }

    /// The writer has taken a message.
    pub fn took(&self, message: &Message) {
        self.records.fetch_sub(message.records(), Ordering::Relaxed);
    }

    /// Resolves when a reader waits.
    pub async fn hurried(&self) {
        self.hurry.notified().await;
    }

    /// How many events were lost since the last time.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl Message {
    fn records(&self) -> usize {
        match self {
            Self::Applied(records) | Self::Installed(records) => records.len(),
            Self::Note(_) => 1,
            Self::Settle(_) | Self::Flush(_) => 0,
        }
    }
}

/// Hands events to the event log; clones hand to the same.
#[derive(Clone, Debug)]
pub struct EventLogSender {
    messages: mpsc::Sender<Message>,
    backlog: Arc<Backlog>,
}

/// Makes both ends.
pub(in crate::plane::runtime) fn channel() -> (EventLogSender, (mpsc::Receiver<Message>, Arc<Backlog>)) {
    let (messages, receiver) = mpsc::channel(EVENT_MESSAGES_MAX);
    let backlog = Arc::new(Backlog::default());
    let sender = EventLogSender {
        messages,
        backlog: Arc::clone(&backlog),
    };
    (sender, (receiver, backlog))
}

impl EventLogSender {
    /// Tells of something that is not in the log of commands.
    pub fn note(&self, event: Event) {
        self.hand(Message::Note(event));
    }

    /// Hands over the events of applied entries, in order.
    pub(in crate::plane::runtime) fn applied(&self, records: &[Arc<EventRecord>]) {
        for chunk in records.chunks(EVENT_CHUNK_RECORDS) {
            self.hand(Message::Applied(chunk.to_vec()));
        }
    }

    /// Hands over what differs in a state that came as a whole.
    pub(in crate::plane::runtime) fn installed(&self, records: Vec<Arc<EventRecord>>) {
        self.hand(Message::Installed(records));
    }

    fn hand(&self, message: Message) {
        let records = message.records();
        let lost = match self.backlog.add(records) {
            false => true,
            true => self
                .messages
                .try_send(message)
                .map_err(|error| self.backlog.took(&error.into_inner()))
                .is_err(),
        };
        if lost {
            self.backlog.lost.fetch_add(records as u64, Ordering::Relaxed);
        }
    }

    /// Waits until everything before this can be read, or the writer has ended.
    pub(in crate::plane::runtime) async fn settle(&self) {
        self.wait_for(Message::Settle).await;
    }

    /// Waits until everything before this is on disk, or the writer has ended.
    pub(in crate::plane::runtime) async fn flush(&self) {
        self.wait_for(Message::Flush).await;
    }

    async fn wait_for(&self, message: impl FnOnce(oneshot::Sender<()>) -> Message) {
        let (done, is_done) = oneshot::channel();
        if self.messages.send(message(done)).await.is_ok() {
            self.backlog.hurry.notify_one();
            // A writer that has ended has written what it had.
            let _ = is_done.await;
        }
    }
}
