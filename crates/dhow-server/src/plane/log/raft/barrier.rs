//! Linearizable reads: one round of asking the others serves everybody who waits. Who comes while a round is under
//! way waits for the next one, for the round may have begun before the write that it must see.

use std::sync::Arc;

use openraft::error::{CheckIsLeaderError, RaftError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::engine::Engine;
use super::limits::MAX_BARRIER_WAITS;
use super::options::RaftPeerAddrs;
use crate::plane::log::ProposeError;

type Waiter = oneshot::Sender<Result<u64, ProposeError>>;

/// The way to the task that asks.
#[derive(Debug)]
pub struct BarrierQueue {
    waiters: mpsc::Sender<Waiter>,
}

impl BarrierQueue {
    pub fn new() -> (Self, mpsc::Receiver<Waiter>) {
        let (waiters, receiver) = mpsc::channel(MAX_BARRIER_WAITS);
        (Self { waiters }, receiver)
    }

    /// The index that must be applied before a read.
    pub async fn wait(&self) -> Result<u64, ProposeError> {
        let (waiter, answer) = oneshot::channel();
        self.waiters.try_send(waiter).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ProposeError::Full,
            mpsc::error::TrySendError::Closed(_) => ProposeError::NotLeader { leader: None },
        })?;
        answer
            .await
            .unwrap_or(Err(ProposeError::NotLeader { leader: None }))
    }
}

/// Serves readers until the log is closed.
pub async fn run(engine: Arc<Engine>, mut waiters: mpsc::Receiver<Waiter>) {
    let cancel = engine.shared.cancel.clone();
    let mut waiting = Vec::new();
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            count = waiters.recv_many(&mut waiting, MAX_BARRIER_WAITS) => if count == 0 { return },
        }
        let outcome = tokio::select! {
            () = cancel.cancelled() => return,
            outcome = round(&engine) => outcome,
        };
        for waiter in waiting.drain(..) {
            // Whoever waited may have gone.
            let _ = waiter.send(outcome.clone());
        }
    }
}

/// The library gives others a heartbeat to answer, and they do not while they write: where disks are slow, they are asked
/// again.
async fn round(engine: &Engine) -> Result<u64, ProposeError> {
    let begun = Instant::now();
    loop {
        let error = match engine.raft.get_read_log_id().await {
            Ok((read, _)) => return Ok(read.map_or(0, |id| id.index)),
            Err(error) => error,
        };
        let is_unanswered = matches!(error, RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_)));
        if !is_unanswered || begun.elapsed() >= engine.shared.write_slack() {
            return Err(refused(engine, &error));
        }
        tokio::time::sleep(engine.shared.timings.heartbeat() / 2).await;
    }
}

fn refused(engine: &Engine, error: &RaftError<u64, CheckIsLeaderError<u64, RaftPeerAddrs>>) -> ProposeError {
    let leader = match error {
        RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward)) => forward.leader_id,
        RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_)) | RaftError::Fatal(_) => None,
    };
    let leader = leader.filter(|leader| *leader != engine.shared.node_id);
    ProposeError::NotLeader { leader }
}
