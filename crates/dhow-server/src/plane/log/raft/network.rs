//! The consensus library's way to the others, over the channel between servers.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, Snapshot};

use super::ahead::UnderWay;
use super::ask::AskError;
use super::blob::Blob;
use super::entry_form::to_stored;
use super::log_state::RaftLogState;
use super::options::RaftPeerAddrs;
use super::send_snapshot::send_snapshot;
use super::types::{RaftLogId, TypeConfig, Vote, log_id, position};
use super::vote_form::VoteForm;
use super::wire::{Answer, AppendForm, At, Question};
use crate::net::peers::{Lane, PeerError};

type RpcError = RPCError<u64, RaftPeerAddrs, RaftError<u64>>;

/// Makes a [`Line`] to each member.
pub struct Network {
    pub shared: Arc<RaftLogState>,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Line;

    async fn new_client(&mut self, target: u64, node: &RaftPeerAddrs) -> Line {
        Line {
            shared: Arc::clone(&self.shared),
            target,
            addr: node.raft_addr,
            under_way: None,
            is_followed: false,
        }
    }
}

/// The way to one member.
pub struct Line {
    shared: Arc<RaftLogState>,
    target: u64,
    addr: SocketAddr,
    /// A message with entries that the library gave up on while it was still on its way.
    under_way: Option<UnderWay>,
    /// Whether entries were taken by the one at its other end.
    is_followed: bool,
}

pub fn at(id: &Option<RaftLogId>) -> Option<At> {
    id.as_ref().map(|id| At::from(position(id)))
}

pub fn id(at: Option<At>) -> Option<RaftLogId> {
    at.map(|at| log_id(at.into()))
}

fn append_form(rpc: AppendEntriesRequest<TypeConfig>) -> AppendForm {
    let entries = rpc.entries.into_iter().map(to_stored);
    AppendForm {
        vote: VoteForm::of(&rpc.vote),
        previous: at(&rpc.prev_log_id),
        committed: at(&rpc.leader_commit),
        entries: entries
            .map(|stored| (stored.position().into(), Blob(stored.payload)))
            .collect(),
    }
}

fn failed(error: AskError) -> RpcError {
    match &error {
        AskError::Peer(PeerError::Unreachable { .. })
        | AskError::AnotherStore { .. }
        | AskError::NotKnown { .. }
        | AskError::Stopped { .. } => RPCError::Unreachable(Unreachable::new(&error)),
        AskError::Peer(
            PeerError::TimedOut { .. } | PeerError::Broken { .. } | PeerError::TooLarge { .. },
        )
        | AskError::NotUnderstood { .. }
        | AskError::Unreadable { .. }
        | AskError::OffTopic { .. }
        | AskError::Nowhere { .. } => RPCError::Network(NetworkError::new(&error)),
    }
}

impl Line {
    /// Sends entries; where the first of the same are still on their way, waits for those. The library may drop this
    /// at any moment; the message stays under way.
    async fn append(&mut self, form: AppendForm) -> Result<Answer, AskError> {
        let node = self.target;
        let wanted = form.entries.last().map(|(at, _)| *at);
        let is_begun = |sent: &UnderWay| sent.begins(&form, wanted);
        if !self.under_way.as_ref().is_some_and(is_begun) {
            let ahead = self.shared.ahead.take(node, &form, wanted);
            self.under_way = Some(ahead.unwrap_or_else(|| self.send(form.clone())));
        }
        loop {
            let Some(under_way) = &mut self.under_way else {
                return Err(AskError::Stopped { node });
            };
            let (last, was_ahead) = (under_way.last, under_way.is_ahead);
            let answered = (&mut under_way.answer).await;
            self.under_way = None;
            let answered = answered.unwrap_or(Err(AskError::Stopped { node }));
            match answered {
                Ok(Answer::Appended) => {
                    self.is_followed = true;
                    self.shared.ahead.acked(node, self.addr, form.vote, last);
                    return Ok(match last == wanted {
                        true => Answer::Appended,
                        false => Answer::AppendedUpTo(last),
                    });
                }
                // It may have overtaken what it follows: the question is asked again where it counts.
                Ok(_) | Err(_) if was_ahead => self.under_way = Some(self.send(form.clone())),
                Ok(_) | Err(_) => {
                    self.shared.ahead.forget(node);
                    return answered;
                }
            }
        }
    }

    fn send(&self, form: AppendForm) -> UnderWay {
        UnderWay::send(&self.shared, self.target, self.addr, form, false)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.is_followed {
            self.shared.ahead.forget(self.target);
        }
    }
}

impl RaftNetwork<TypeConfig> for Line {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RpcError> {
        let form = append_form(rpc);
        let node = self.target;
        let answer = if form.entries.is_empty() {
            let question = Question::Append(form);
            let asked = self
                .shared
                .ask(node, self.addr, Lane::Log, question, option.hard_ttl());
            asked.await
        } else {
            self.append(form).await
        };
        match answer.map_err(failed)? {
            Answer::Appended => Ok(AppendEntriesResponse::Success),
            Answer::AppendedUpTo(up_to) => Ok(AppendEntriesResponse::PartialSuccess(id(up_to))),
            Answer::Conflict => Ok(AppendEntriesResponse::Conflict),
            Answer::HigherVote(vote) => Ok(AppendEntriesResponse::HigherVote(vote.into_vote())),
            Answer::Voted { .. }
            | Answer::PreVoted { .. }
            | Answer::Hello { .. }
            | Answer::Snapshot { .. }
            | Answer::SnapshotAgain
            | Answer::Done
            | Answer::Refused(_) => Err(failed(AskError::OffTopic { node })),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RpcError> {
        let question = Question::Vote {
            vote: VoteForm::of(&rpc.vote),
            last: at(&rpc.last_log_id),
        };
        let node = self.target;
        let asked = self
            .shared
            .ask(node, self.addr, Lane::Log, question, option.hard_ttl());
        match asked.await.map_err(failed)? {
            Answer::Voted {
                vote,
                last,
                is_granted,
            } => Ok(VoteResponse::new(vote.into_vote(), id(last), is_granted)),
            Answer::Appended
            | Answer::AppendedUpTo(_)
            | Answer::Conflict
            | Answer::HigherVote(_)
            | Answer::PreVoted { .. }
            | Answer::Hello { .. }
            | Answer::Snapshot { .. }
            | Answer::SnapshotAgain
            | Answer::Done
            | Answer::Refused(_) => Err(failed(AskError::OffTopic { node })),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<TypeConfig>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<TypeConfig, Fatal<u64>>> {
        tokio::select! {
            closed = cancel => Err(closed.into()),
            sent = send_snapshot(&self.shared, self.target, self.addr, vote, snapshot) => match sent {
                Ok(vote) => Ok(SnapshotResponse::new(vote)),
                Err(error) => Err(StreamingError::Unreachable(Unreachable::new(&error))),
            },
        }
    }

    fn backoff(&self) -> Backoff {
        // A member that comes back is found again within a heartbeat.
        Backoff::new(std::iter::repeat(self.shared.timings.heartbeat()))
    }
}
