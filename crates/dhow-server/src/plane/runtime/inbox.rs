//! The sending end of the reducer's inbox. It never waits: a full inbox is told at once, and the caller tries
//! again. Cheap to clone; handlers and workers have one each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dhow_core::command::{Command, RequestId};
use dhow_core::ids::NodeId;
use dhow_core::mirror::RolloutId;
use dhow_core::state::State;
use tokio::sync::{mpsc, oneshot};

use super::error::{InboxError, WriteError};
use super::input::{Applied, HostReport, ReducerInput, ReportAck, ReportBody, WriteRequest};

/// The sending end of the reducer's inbox, for handlers, sessions and tasks; clones send to the same inbox.
#[derive(Clone, Debug)]
pub struct InputSender {
    inbox: mpsc::Sender<ReducerInput>,
    heartbeats: Arc<AtomicU64>,
}

/// One that does not keep the reducer running: for the runtime's own workers.
#[derive(Clone, Debug)]
pub(super) struct WeakInputSender {
    inbox: mpsc::WeakSender<ReducerInput>,
}

impl InputSender {
    pub(super) fn new(inbox: mpsc::Sender<ReducerInput>) -> Self {
        Self {
            inbox,
            heartbeats: Arc::default(),
        }
    }

    pub(super) fn downgrade(&self) -> WeakInputSender {
        WeakInputSender {
            inbox: self.inbox.downgrade(),
        }
    }

    /// Hands an input in, or says at once that there is no room.
    pub fn try_send(&self, input: ReducerInput) -> Result<(), InboxError> {
        try_send(&self.inbox, input)
    }

    /// A heartbeat came in, whether or not there is room for it.
    pub(super) fn count_heartbeat(&self) {
        self.heartbeats.fetch_add(1, Ordering::Relaxed);
    }

    /// Heartbeats that came in since the start.
    pub fn heartbeats(&self) -> u64 {
        self.heartbeats.load(Ordering::Relaxed)
    }

    /// How many inputs wait for the reducer, and how many may.
    pub fn load(&self) -> (usize, usize) {
        let room = self.inbox.max_capacity();
        (room.saturating_sub(self.inbox.capacity()), room)
    }

    /// Waits until nothing is taken any more: the server is shutting down.
    pub async fn closed(&self) {
        self.inbox.closed().await;
    }

    /// Asks for a change and waits until it is durable and applied, or refused. Where the wait is given up, the
    /// outcome is unknown to the caller.
    pub async fn write(&self, command: Command, request: Option<RequestId>) -> Result<Applied, WriteError> {
        let (reply, answer) = oneshot::channel();
        self.try_send(ReducerInput::Write(WriteRequest {
            command,
            request,
            reply,
        }))?;
        answer.await.unwrap_or(Err(WriteError::Unknown))
    }

    /// Hands in what a node reports and waits until it is durable.
    pub async fn report(
        &self,
        host: NodeId,
        rollout_id: Option<RolloutId>,
        incarnation: u64,
        body: ReportBody,
    ) -> Result<ReportAck, WriteError> {
        let (ack, answer) = oneshot::channel();
        self.try_send(ReducerInput::HostEvent {
            host,
            rollout_id,
            event: HostReport {
                incarnation,
                body,
                ack,
            },
        })?;
        answer.await.unwrap_or(Err(WriteError::Unknown))
    }

    /// The state after everything that the reducer has applied by the time it comes to this.
    pub async fn read(&self) -> Result<Arc<State>, InboxError> {
        let (reply, answer) = oneshot::channel();
        self.try_send(ReducerInput::Read { reply })?;
        answer.await.map_err(|_| InboxError::Closed)
    }
}

impl WeakInputSender {
    pub fn try_send(&self, input: ReducerInput) -> Result<(), InboxError> {
        let inbox = self.inbox.upgrade().ok_or(InboxError::Closed)?;
        try_send(&inbox, input)
    }
}

fn try_send(inbox: &mpsc::Sender<ReducerInput>, input: ReducerInput) -> Result<(), InboxError> {
    inbox.try_send(input).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => InboxError::Full,
        mpsc::error::TrySendError::Closed(_) => InboxError::Closed,
    })
}
