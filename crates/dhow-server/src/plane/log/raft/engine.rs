//! The consensus library together with what this crate knows besides.

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;

use super::ask::AskError;
use super::barrier::BarrierQueue;
use super::incoming::Incoming;
use super::limits::ASK_TIMEOUT_MS;
use super::log_state::RaftLogState;
use super::snapshot_data::SnapshotData;
use super::types::{Raft, RaftLogId, SnapshotMeta, Vote, position};
use super::wire::{Answer, Question};
use crate::net::peers::Lane;
use crate::plane::log::store::LogPosition;

/// The consensus library's handle together with the state that the parts of a raft log share. Its tasks and the handler
/// of other servers' questions hold it; it does not keep the log open.
pub struct Engine {
    pub shared: Arc<RaftLogState>,
    pub raft: Raft,
    pub incoming: Incoming,
    pub barriers: BarrierQueue,
}

impl Engine {
    /// The last entry that is durable here.
    pub fn last(&self) -> Option<LogPosition> {
        self.shared.store.bounds().ok().and_then(|bounds| bounds.last)
    }

    /// Whether this node would elect another, or stand itself: nobody else is about to be elected that it has said yes
    /// to.
    pub fn would_elect(&self, node: u64, last: Option<LogPosition>) -> bool {
        self.would_vote(last) && self.shared.promised_to_other_than(node).is_none()
    }

    /// Whether this node would vote for one whose log ends there: it hears no leader, does not lead itself, and has
    /// nothing that the other lacks.
    pub fn would_vote(&self, last: Option<LogPosition>) -> bool {
        let rank = |at: Option<LogPosition>| at.map(|at| (at.term, at.index));
        let is_leader = self.raft.metrics().borrow().state == ServerState::Leader;
        let hears_leader = match is_leader {
            true => self.shared.leadership().is_here,
            false => self.shared.silence() <= self.shared.lease(),
        };
        !hears_leader && rank(last) >= rank(self.last())
    }

    /// Asks a member, or one that a new cluster begins with. Members count from the entry on that names them, before it
    /// is committed: it may need them to become so.
    pub async fn ask(&self, node: u64, question: Question) -> Result<Answer, AskError> {
        let known = self
            .raft
            .metrics()
            .borrow()
            .membership_config
            .membership()
            .get_node(&node)
            .copied();
        let addrs = known.or_else(|| self.shared.first_peers.get(&node).copied());
        let addr = addrs.ok_or(AskError::Nowhere { node })?.raft_addr;
        let timeout = Duration::from_millis(ASK_TIMEOUT_MS);
        self.shared.ask(node, addr, Lane::Log, question, timeout).await
    }

    /// The position of the last applied entry.
    pub fn applied(&self) -> Option<LogPosition> {
        let applied: Option<RaftLogId> = self.raft.metrics().borrow().last_applied;
        applied.as_ref().map(position)
    }

    /// Makes this node hear of a vote that is not granted yet. It is how a leader lets go: nobody waits for its
    /// lease any more, and who is elected still needs a quorum that finds its log good enough.
    pub async fn hear_of(&self, vote: Vote) -> Option<Answer> {
        let meta = SnapshotMeta::default();
        self.hand_over_snapshot(vote, meta, SnapshotData::Nothing)
            .await
            .map(|_| Answer::Done)
    }

    /// The leader of the term before lets go in favour of a node.
    pub async fn stand_aside(&self, term: u64, favoured: u64) -> Option<Answer> {
        if favoured == self.shared.node_id {
            return Some(Answer::Done);
        }
        let heard = self.hear_of(Vote::new(term, favoured)).await?;
        self.shared.promise(favoured);
        Some(heard)
    }

    /// The vote of this node, when it has done all that it was asked before.
    pub async fn own_vote(&self) -> Option<Vote> {
        self.raft.with_raft_state(|state| *state.vote_ref()).await.ok()
    }

    /// The leader of the term before wants this node to be elected.
    pub async fn take_over(&self, term: u64) -> Option<Answer> {
        let own = self.own_vote().await?;
        if own.leader_id.term < term {
            self.raft.trigger().elect().await.ok()?;
        }
        Some(Answer::Done)
    }
}
