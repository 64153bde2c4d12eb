//! Packs what the reducer proposes: many proposals become one entry of the log, so that one write of each server's
//! disk serves all of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use openraft::error::ClientWriteError;
use tokio::sync::mpsc;

use super::blob::Blob;
use super::engine::Engine;
use super::limits::{BATCH_BYTES, MAX_BATCHES_IN_FLIGHT, MAX_PROPOSALS, OUTCOME_TIMEOUT_MS};
use super::pending::Part;
use super::types::{Batch, BatchTag};
use crate::plane::log::{LogEvent, ProposalId, ProposeError};

/// A proposal on its way to the proposer.
#[derive(Debug)]
pub struct Proposal {
    pub id: ProposalId,
    pub commands: Vec<Bytes>,
    /// As part of an entry.
    pub size_bytes: usize,
}

/// What the library said about a batch.
enum Said {
    /// It is applied, so that the reducer has the event already.
    Applied,
    /// This node did not lead any more.
    NotLeader { leader: Option<u64> },
    /// Nothing in time, or the library has stopped.
    Nothing,
}

/// The task that takes the reducer's proposals, packs them into entries and hands those to the consensus library.
pub struct Proposer {
    engine: Arc<Engine>,
    queue: mpsc::Receiver<Proposal>,
    events: mpsc::Sender<LogEvent>,
    /// Taken from the queue and not packed yet.
    waiting: VecDeque<Proposal>,
    in_flight: FuturesUnordered<BoxFuture<'static, (BatchTag, Said)>>,
}

impl Proposer {
    pub fn new(engine: Arc<Engine>, queue: mpsc::Receiver<Proposal>, events: mpsc::Sender<LogEvent>) -> Self {
        Self {
            engine,
            queue,
            events,
            waiting: VecDeque::new(),
            in_flight: FuturesUnordered::new(),
        }
    }

    /// Works until the log is closed.
    pub async fn run(mut self) {
        let cancel = self.engine.shared.cancel.clone();
        let mut leadership = self.engine.shared.leadership.subscribe();
        let mut is_held = self.engine.shared.is_held.subscribe();
        let mut taken = Vec::new();
        loop {
            let has_room = self.waiting.is_empty() && self.in_flight.len() < MAX_BATCHES_IN_FLIGHT;
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                Some((tag, said)) = self.in_flight.next() => self.settle(tag, said).await,
                // The senders live as long as the engine.
                _ = leadership.changed() => {}
                _ = is_held.changed() => {}
                count = self.queue.recv_many(&mut taken, MAX_PROPOSALS), if has_room => if count == 0 { return },
            }
            self.waiting.extend(taken.drain(..));
            let now = *leadership.borrow();
            if !now.is_here {
                let (leader, refused) = (now.leader, std::mem::take(&mut self.waiting));
                for proposal in refused {
                    refuse(&self.events, proposal.id, ProposeError::NotLeader { leader }).await;
                }
            }
            let may_send = !*is_held.borrow();
            while may_send && self.in_flight.len() < MAX_BATCHES_IN_FLIGHT && !self.waiting.is_empty() {
                self.send_one().await;
            }
        }
    }

    /// Packs as much as fits and hands it on.
    async fn send_one(&mut self) {
        let mut parts = Vec::new();
        let mut commands = Vec::new();
        let mut size_bytes = 0;
        let limit_bytes = BATCH_BYTES.min(self.engine.shared.max_proposal_bytes);
        while let Some(next) = self.waiting.front() {
            if !parts.is_empty() && size_bytes + next.size_bytes > limit_bytes {
                break;
            }
            let Some(proposal) = self.waiting.pop_front() else {
                break;
            };
            size_bytes += proposal.size_bytes;
            parts.push(Part {
                proposal: proposal.id,
                commands: proposal.commands.len(),
            });
            commands.extend(proposal.commands.into_iter().map(Blob));
        }
        let tag = self.engine.shared.pending.add(parts);
        let written = self.engine.raft.client_write_ff(Batch { tag, commands }).await;
        let timeout = Duration::from_millis(OUTCOME_TIMEOUT_MS);
        self.in_flight.push(Box::pin(async move {
            let Ok(answer) = written else {
                return (tag, Said::Nothing);
            };
            let said = match tokio::time::timeout(timeout, answer).await {
                Ok(Ok(Ok(_))) => Said::Applied,
                Ok(Ok(Err(ClientWriteError::ForwardToLeader(forward)))) => Said::NotLeader {
                    leader: forward.leader_id,
                },
                Ok(Ok(Err(ClientWriteError::ChangeMembershipError(_))) | Err(_)) | Err(_) => Said::Nothing,
            };
            (tag, said)
        }));
    }

    /// Tells what became of a batch, where it is known by now. A batch that was written here when this node lost its
    /// place may still be committed by another leader: what is applied next shows it.
    async fn settle(&mut self, tag: BatchTag, said: Said) {
        let shared = &self.engine.shared;
        let (parts, cause) = match said {
            Said::Applied => return,
            Said::NotLeader { leader } => match shared.pending.never_written(tag) {
                Some(parts) => (parts, ProposeError::NotLeader { leader }),
                None => return self.give_up_later(tag),
            },
            Said::Nothing => (
                shared.pending.give_up(tag).unwrap_or_default(),
                ProposeError::Unknown,
            ),
        };
        for part in parts {
            refuse(&self.events, part.proposal, cause.clone()).await;
        }
    }

    fn give_up_later(&self, tag: BatchTag) {
        let (engine, events) = (Arc::clone(&self.engine), self.events.clone());
        let cancel = engine.shared.cancel.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(Duration::from_millis(OUTCOME_TIMEOUT_MS)) => {}
            }
            for part in engine.shared.pending.give_up(tag).unwrap_or_default() {
                let (proposal, cause) = (part.proposal, ProposeError::Unknown);
                if events.send(LogEvent::Refused { proposal, cause }).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn refuse(events: &mpsc::Sender<LogEvent>, proposal: ProposalId, cause: ProposeError) {
    // A reducer that has ended waits for nothing.
    let _ = events.send(LogEvent::Refused { proposal, cause }).await;
}
