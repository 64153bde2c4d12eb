//! Hands leadership to another voter, for a drain or the end of the daemon, in two round trips.
//!
//! The leader holds proposals back, waits until the other has all of its log, steps down, and has the voters hear of
//! a vote for the other in the next term that nobody has granted yet. From then on they do not wait for the old
//! leader's lease; the other is then elected as always, by a quorum that finds its log good enough. Proposals that
//! were held back were never handed on, and are refused for certain.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::limits::TRANSFER_TIMEOUT_MS;
use super::options::RaftPeerAddrs;
use super::raft_log::RaftLog;
use super::types::Vote;
use super::wire::Question;

/// Why leadership was not handed over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    #[error("this node does not lead{}", match leader { Some(id) => format!(", node {id} does"), None => String::new() })]
    NotLeader { leader: Option<u64> },
    #[error("node {id} is no voter")]
    NoVoter { id: u64 },
    #[error("no other voter could take over")]
    Nobody,
    #[error("node {id} does not catch up with the log")]
    NotCaughtUp { id: u64 },
    #[error("a hand-over is under way already")]
    Busy,
    #[error("node {id} did not take over in time; the voters elect somebody by themselves")]
    NotTaken { id: u64 },
    #[error("the raft log has stopped")]
    Stopped,
}

/// Lets proposals go on when it is dropped.
struct Hold<'a> {
    log: &'a RaftLog,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.log.engine().shared.is_held.send_replace(false);
    }
}

impl RaftLog {
    /// Hands leadership to a voter, or to the one that has most of the log; returns which.
    pub async fn transfer(&self, to: Option<u64>) -> Result<u64, TransferError> {
        let shared = &self.engine().shared;
        let leadership = shared.leadership();
        if !leadership.is_here {
            let leader = leadership.leader;
            return Err(TransferError::NotLeader { leader });
        }
        let favoured = self.favoured(to)?;
        if shared.is_held.send_replace(true) {
            return Err(TransferError::Busy);
        }
        let hold = Hold { log: self };
        self.has_all(favoured).await?;
        let term = self.step_down(favoured).await?;
        self.have_it_elected(term, favoured).await;
        let taken = self.taken_over(favoured).await;
        drop(hold);
        taken
    }

    fn favoured(&self, to: Option<u64>) -> Result<u64, TransferError> {
        let own = self.node_id();
        let metrics = self.engine().raft.metrics();
        let metrics = metrics.borrow();
        let others = metrics.membership_config.voter_ids().filter(|id| *id != own);
        let mut others: Vec<u64> = others.collect();
        if let Some(id) = to {
            return match others.contains(&id) {
                true => Ok(id),
                false => Err(TransferError::NoVoter { id }),
            };
        }
        let matched = |id: &u64| {
            metrics
                .replication
                .as_ref()
                .and_then(|all| all.get(id).copied().flatten())
        };
        others.sort_by_key(matched);
        others.pop().ok_or(TransferError::Nobody)
    }

    /// Waits until nothing is on its way and the other has everything.
    async fn has_all(&self, id: u64) -> Result<(), TransferError> {
        let engine = self.engine();
        let pending = &engine.shared.pending;
        let has_all = move |metrics: &openraft::RaftMetrics<u64, RaftPeerAddrs>| {
            let Some(replication) = &metrics.replication else {
                return true;
            };
            let matched = replication.get(&id).copied().flatten();
            let has_all = matched.map(|matched| matched.index) == metrics.last_log_index;
            has_all && pending.is_empty()
        };
        let timeout = Duration::from_millis(TRANSFER_TIMEOUT_MS) + engine.shared.write_slack();
        let waited = engine
            .raft
            .wait(Some(timeout))
            .metrics(has_all, "nothing on its way")
            .await;
        match waited {
            Ok(metrics) if metrics.replication.is_none() => Err(TransferError::NotLeader {
                leader: metrics.current_leader,
            }),
            Ok(_) => Ok(()),
            Err(openraft::metrics::WaitError::Timeout(..)) => Err(TransferError::NotCaughtUp { id }),
            Err(openraft::metrics::WaitError::ShuttingDown) => Err(TransferError::Stopped),
        }
    }

    /// Ends this node's term; returns the next one.
    async fn step_down(&self, favoured: u64) -> Result<u64, TransferError> {
        let engine = self.engine();
        let own: Vote = engine
            .raft
            .with_raft_state(|state| *state.vote_ref())
            .await
            .map_err(|_| TransferError::Stopped)?;
        let term = own.leader_id.term + 1;
        // It led until now, so that nobody needs to be elected for another while.
        engine.shared.hear();
        engine
            .hear_of(Vote::new(term, favoured))
            .await
            .ok_or(TransferError::Stopped)?;
        Ok(term)
    }

    /// Has the other voters let go, then asks the favoured one to stand. One that does not answer is not waited for.
    async fn have_it_elected(&self, term: u64, favoured: u64) {
        let engine = self.engine();
        let others = self.members().into_iter().filter(|member| {
            let is_asked = member.id != favoured && member.id != engine.shared.node_id;
            is_asked && member.is_voter
        });
        let mut answers: FuturesUnordered<_> = others
            .map(|member| engine.ask(member.id, Question::StandAside { term, favoured }))
            .collect();
        while let Some(answer) = answers.next().await {
            if let Err(error) = answer {
                tracing::debug!(%error, "a voter did not hear that the leader lets go");
            }
        }
        let asked = engine.ask(favoured, Question::TakeOver { term }).await;
        if let Err(error) = asked {
            tracing::warn!(%error, "the favoured node did not hear that it should lead");
        }
    }

    /// Waits until somebody leads.
    async fn taken_over(&self, favoured: u64) -> Result<u64, TransferError> {
        let timeout = Duration::from_millis(TRANSFER_TIMEOUT_MS) + self.engine().shared.election_slack();
        let own = self.node_id();
        let leads = move |metrics: &openraft::RaftMetrics<u64, RaftPeerAddrs>| {
            metrics.current_leader.is_some_and(|leader| leader != own)
        };
        let waited = self
            .engine()
            .raft
            .wait(Some(timeout))
            .metrics(leads, "taken over")
            .await;
        match waited.map(|metrics| metrics.current_leader) {
            Ok(Some(leader)) => Ok(leader),
            Ok(None) | Err(openraft::metrics::WaitError::Timeout(..)) => {
                Err(TransferError::NotTaken { id: favoured })
            }
            Err(openraft::metrics::WaitError::ShuttingDown) => Err(TransferError::Stopped),
        }
    }
}
