//! An outbox of a holder, shared by the calls of nodes that wait in it and by the task that makes its messages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::NodeId;
use dhow_core::lease::{Outbox, OutboxFull, OutboxKind};
use dhow_wire::grpc::Refusal;
use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;

/// A question of a node for the leader, and who waits for the answer.
pub(super) struct Asked<Q, A> {
    pub question: Q,
    pub answer: oneshot::Sender<Result<A, Refusal>>,
}

/// What waits, and what is on its way; none once the server ends.
type OpenOutbox<Q, A> = Option<Outbox<Asked<Q, A>>>;

/// Questions of one kind; clones are the same.
pub(super) struct Carrier<Q, A> {
    outbox: Arc<Mutex<OpenOutbox<Q, A>>>,
    /// Something has entered, or a message is done.
    news: Arc<Notify>,
}

impl<Q, A> Clone for Carrier<Q, A> {
    fn clone(&self) -> Self {
        Self {
            outbox: Arc::clone(&self.outbox),
            news: Arc::clone(&self.news),
        }
    }
}

/// A message to the leader. It is on its way until it is dropped.
pub(super) struct Carried<Q, A> {
    carrier: Carrier<Q, A>,
    parcel: u64,
    pub until_ms: u64,
    pub asked: Vec<Asked<Q, A>>,
}

impl<Q, A> Carrier<Q, A> {
    pub fn new(kind: OutboxKind) -> Self {
        Self {
            outbox: Arc::new(Mutex::new(Some(Outbox::new(kind)))),
            news: Arc::new(Notify::new()),
        }
    }

    /// Hands a question over; what comes of it, once the leader has answered.
    pub fn enter(
        &self,
        of: (NodeId, usize),
        question: Q,
        times_ms: (u64, u64),
    ) -> Result<oneshot::Receiver<Result<A, Refusal>>, Refusal> {
        let (answer, answered) = oneshot::channel();
        let mut outbox = self.outbox();
        let open = outbox.as_mut().ok_or(Refusal::ShuttingDown)?;
        let entered = open.enter(of, Asked { question, answer }, times_ms);
        drop(outbox);
        entered.map_err(|full| match full {
            OutboxFull::OfNode => Refusal::TooOften,
            OutboxFull::OfAll => Refusal::Busy,
        })?;
        self.news.notify_one();
        Ok(answered)
    }

    /// Waits until there is a message for the leader.
    pub async fn next(&self, clock: &dyn Clock) -> Carried<Q, A> {
        loop {
            let (parcel, wakes_at_ms) = {
                let mut outbox = self.outbox();
                let now_ms = clock.monotonic_ms();
                let has_gone = |asked: &Asked<Q, A>| asked.answer.is_closed();
                let parcel = outbox.as_mut().and_then(|open| open.next(now_ms, has_gone));
                (parcel, outbox.as_ref().and_then(Outbox::wakes_at_ms))
            };
            if let Some(parcel) = parcel {
                for asked in parcel.late {
                    let _ = asked.answer.send(Err(Refusal::Busy));
                }
                if parcel.asked.is_empty() {
                    continue;
                }
                return Carried {
                    carrier: self.clone(),
                    parcel: parcel.id,
                    until_ms: parcel.until_ms,
                    asked: parcel.asked,
                };
            }
            let woken = async {
                match wakes_at_ms {
                    Some(at_ms) => clock.sleep_until_monotonic(at_ms).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = woken => {}
                () = self.news.notified() => {}
            }
        }
    }

    /// The server ends: whoever waits or comes is told so.
    pub fn close(&self) {
        self.outbox().take();
    }

    fn outbox(&self) -> MutexGuard<'_, OpenOutbox<Q, A>> {
        // Every change is whole before the lock is let go of, so one left by a panic is sound.
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q, A> Carried<Q, A> {
    /// The questions, and who waits for their answers, in the same order.
    pub fn take(&mut self) -> (Vec<Q>, Answers<A>) {
        let asked = std::mem::take(&mut self.asked).into_iter();
        asked.map(|asked| (asked.question, asked.answer)).unzip()
    }
}

/// Who waits for the answers to the questions of one message.
pub(super) type Answers<A> = Vec<oneshot::Sender<Result<A, Refusal>>>;

impl<Q, A> Drop for Carried<Q, A> {
    fn drop(&mut self) {
        if let Some(open) = self.carrier.outbox().as_mut() {
            open.done(self.parcel);
        }
        self.carrier.news.notify_one();
    }
}
