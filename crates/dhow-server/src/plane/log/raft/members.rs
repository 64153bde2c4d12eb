//! Who belongs to the cluster, and how that changes: one node at a time, each first as a learner that votes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use openraft::ChangeMembers;
use openraft::error::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::raft::ClientWriteResponse;

use super::election::is_quorum;
use super::limits::{ASK_TIMEOUT_MS, CAUGHT_UP_ENTRIES, MAX_MEMBERS, MAX_VOTERS, MEMBER_TIMEOUT_MS};
use super::options::RaftPeerAddrs;
use super::raft_log::RaftLog;
use super::types::{Membership, RaftLogId, StoredMembership, TypeConfig};
use super::wire::{Answer, Question};
use crate::net::peers::Lane;

/// A member of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: u64,
    pub addrs: RaftPeerAddrs,
    /// Whether it counts for a quorum; one that does not is a learner.
    pub is_voter: bool,
}

/// Why the members were not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    #[error("this node does not lead{}", match leader { Some(id) => format!(", node {id} does"), None => String::new() })]
    NotLeader { leader: Option<u64> },
    #[error("node {id} is a member already")]
    Known { id: u64 },
    #[error("node {id} is no member")]
    Unknown { id: u64 },
    #[error("node {by} has the address {addr} already", addr = addrs.raft_addr)]
    AddressTaken { by: u64, addrs: RaftPeerAddrs },
    #[error(
        "node {id} has a raft log already, of another cluster or of the time before it was removed; empty its raft \
         directory first"
    )]
    NotNew { id: u64 },
    #[error("node {id} does not answer ({why}); start it first")]
    Unreachable { id: u64, why: String },
    #[error("a cluster has at most {MAX_VOTERS} voters; remove one first")]
    TooManyVoters,
    #[error("a cluster has at most {MAX_MEMBERS} members; remove one first")]
    TooManyMembers,
    #[error("node {id} is the last voter; a cluster without voters cannot decide anything")]
    LastVoter { id: u64 },
    #[error(
        "without node {id} only {reachable} of the {voters} remaining voters answer, which is no majority: the \
         cluster could not decide anything any more. Bring the others back first, or force it"
    )]
    NoQuorum {
        id: u64,
        reachable: usize,
        voters: usize,
    },
    #[error("another change of the members is under way; try again shortly")]
    Busy,
    #[error("node {id} does not catch up with the log; see whether it runs and can be reached")]
    NotCaughtUp { id: u64 },
    #[error("the change was begun, and it is not known yet whether it was made; look at the members shortly")]
    OutcomeUnknown,
    #[error("the raft log has stopped")]
    Stopped,
}

type Written = Result<ClientWriteResponse<TypeConfig>, RaftError<u64, ClientWriteError<u64, RaftPeerAddrs>>>;

impl RaftLog {
    /// The members as this node knows them.
    pub fn members(&self) -> Vec<Member> {
        let stored = self.effective();
        let voters: BTreeSet<u64> = stored.voter_ids().collect();
        let member = |(id, addrs): (&u64, &RaftPeerAddrs)| Member {
            id: *id,
            addrs: *addrs,
            is_voter: voters.contains(id),
        };
        stored.nodes().map(member).collect()
    }

    fn effective(&self) -> StoredMembership {
        StoredMembership::clone(&self.engine().raft.metrics().borrow().membership_config)
    }

    /// Adds a node that gets the log and votes nothing. The node must be running with an empty directory.
    pub async fn add_learner(&self, id: u64, addrs: RaftPeerAddrs) -> Result<(), MemberError> {
        self.must_lead()?;
        let members = self.members();
        if members.iter().any(|member| member.id == id) {
            return Err(MemberError::Known { id });
        }
        if let Some(taken) = members
            .iter()
            .find(|member| member.addrs.raft_addr == addrs.raft_addr)
        {
            return Err(MemberError::AddressTaken { by: taken.id, addrs });
        }
        if members.len() >= MAX_MEMBERS {
            return Err(MemberError::TooManyMembers);
        }
        self.must_be_new(id, addrs).await?;
        let added = ChangeMembers::AddNodes(BTreeMap::from([(id, addrs)]));
        self.change(added, true).await
    }

    /// Lets a learner vote, once it has nearly all of the log.
    pub async fn promote(&self, id: u64) -> Result<(), MemberError> {
        self.must_lead()?;
        let members = self.members();
        match members.iter().find(|member| member.id == id) {
            None => return Err(MemberError::Unknown { id }),
            Some(member) if member.is_voter => return Err(MemberError::Known { id }),
            Some(_) => {}
        }
        let voters = members.iter().filter(|member| member.is_voter).count() + 1;
        if voters > MAX_VOTERS {
            return Err(MemberError::TooManyVoters);
        }
        self.caught_up(id).await?;
        let promoted = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
        self.change(promoted, true).await?;
        warn_if_even(voters);
        Ok(())
    }

    /// Adds a node and lets it vote.
    pub async fn add(&self, id: u64, addrs: RaftPeerAddrs) -> Result<(), MemberError> {
        self.add_learner(id, addrs).await?;
        self.promote(id).await
    }

    /// Removes a member. `force` removes it although the remaining ones that answer are no majority.
    pub async fn remove(&self, id: u64, force: bool) -> Result<(), MemberError> {
        self.must_lead()?;
        let members = self.members();
        let member = members.iter().find(|member| member.id == id);
        let change = match member {
            None => return Err(MemberError::Unknown { id }),
            Some(member) if !member.is_voter => ChangeMembers::RemoveNodes(BTreeSet::from([id])),
            Some(_) => {
                let rest = members.iter().filter(|member| member.is_voter && member.id != id);
                let rest: BTreeSet<u64> = rest.map(|member| member.id).collect();
                if rest.is_empty() {
                    return Err(MemberError::LastVoter { id });
                }
                self.must_keep_quorum(id, &rest, force).await?;
                warn_if_even(rest.len());
                ChangeMembers::RemoveVoters(BTreeSet::from([id]))
            }
        };
        self.change(change, false).await
    }

    /// Has a change written. It shows in [`RaftLog::members`] when this returns: the library tells its caller before it
    /// tells who looks.
    async fn change(
        &self,
        change: ChangeMembers<u64, RaftPeerAddrs>,
        keeps_removed: bool,
    ) -> Result<(), MemberError> {
        let raft = &self.engine().raft;
        let at = in_time(raft.change_membership(change, keeps_removed)).await?;
        let shows = move |metrics: &openraft::RaftMetrics<u64, RaftPeerAddrs>| {
            metrics
                .membership_config
                .log_id()
                .is_some_and(|shown| shown.index >= at.index)
        };
        let timeout = Duration::from_millis(MEMBER_TIMEOUT_MS);
        match raft.wait(Some(timeout)).metrics(shows, "the members show").await {
            Ok(_) => Ok(()),
            Err(openraft::metrics::WaitError::Timeout(..)) => Err(MemberError::OutcomeUnknown),
            Err(openraft::metrics::WaitError::ShuttingDown) => Err(MemberError::Stopped),
        }
    }

    async fn must_keep_quorum(&self, id: u64, rest: &BTreeSet<u64>, force: bool) -> Result<(), MemberError> {
        let engine = self.engine();
        let shared = &engine.shared;
        let mut answers: FuturesUnordered<_> = rest
            .iter()
            .filter(|node| **node != shared.node_id)
            .map(|node| {
                // Any answer will do; this question changes nothing there.
                let asked = engine.ask(*node, Question::PreVote { last: None });
                async move { asked.await.is_ok().then_some(*node) }
            })
            .collect();
        let mut reachable: BTreeSet<u64> = rest
            .intersection(&BTreeSet::from([shared.node_id]))
            .copied()
            .collect();
        while let Some(answered) = answers.next().await {
            reachable.extend(answered);
        }
        let after = Membership::new(vec![rest.clone()], None);
        if is_quorum(&after, &reachable) || force {
            return Ok(());
        }
        Err(MemberError::NoQuorum {
            id,
            reachable: reachable.len(),
            voters: rest.len(),
        })
    }

    /// A node that has a log of another cluster, even of one, could not be told from one that follows: its first
    /// entries have the same places.
    async fn must_be_new(&self, id: u64, addrs: RaftPeerAddrs) -> Result<(), MemberError> {
        let shared = &self.engine().shared;
        let question = Question::Hello {
            first_peers: BTreeMap::new(),
        };
        let timeout = Duration::from_millis(ASK_TIMEOUT_MS);
        let asked = shared
            .ask(id, addrs.raft_addr, Lane::Log, question, timeout)
            .await;
        match asked {
            Ok(Answer::Hello {
                is_initialized: false,
                ..
            }) => Ok(()),
            Ok(_) => Err(MemberError::NotNew { id }),
            Err(error) => Err(MemberError::Unreachable {
                id,
                why: error.to_string(),
            }),
        }
    }

    fn must_lead(&self) -> Result<(), MemberError> {
        let leadership = self.engine().shared.leadership();
        match leadership.is_here {
            true => Ok(()),
            false => Err(MemberError::NotLeader {
                leader: leadership.leader,
            }),
        }
    }

    /// Waits until a node has nearly all of the log.
    async fn caught_up(&self, id: u64) -> Result<(), MemberError> {
        let timeout = Duration::from_millis(MEMBER_TIMEOUT_MS);
        let is_near = move |metrics: &openraft::RaftMetrics<u64, RaftPeerAddrs>| {
            let last = metrics.last_log_index.unwrap_or_default();
            let Some(replication) = &metrics.replication else {
                return true;
            };
            let matched = replication.get(&id).copied().flatten();
            matched.is_some_and(|matched| matched.index.saturating_add(CAUGHT_UP_ENTRIES) >= last)
        };
        let waited = self
            .engine()
            .raft
            .wait(Some(timeout))
            .metrics(is_near, "caught up")
            .await;
        match waited {
            Ok(metrics) if metrics.replication.is_none() => Err(MemberError::NotLeader {
                leader: metrics.current_leader,
            }),
            Ok(_) => Ok(()),
            Err(openraft::metrics::WaitError::Timeout(..)) => Err(MemberError::NotCaughtUp { id }),
            Err(openraft::metrics::WaitError::ShuttingDown) => Err(MemberError::Stopped),
        }
    }
}

fn warn_if_even(voters: usize) {
    if voters.is_multiple_of(2) {
        tracing::warn!(
            voters,
            "an even number of voters survives no more failures than one voter less; add or remove one"
        );
    }
}

/// The entry that made the change.
async fn in_time(change: impl Future<Output = Written>) -> Result<RaftLogId, MemberError> {
    let timeout = Duration::from_millis(MEMBER_TIMEOUT_MS);
    let Ok(written) = tokio::time::timeout(timeout, change).await else {
        return Err(MemberError::OutcomeUnknown);
    };
    match written {
        Ok(written) => Ok(written.log_id),
        Err(RaftError::Fatal(_)) => Err(MemberError::Stopped),
        Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => Err(MemberError::NotLeader {
            leader: forward.leader_id,
        }),
        Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(cause))) => Err(match cause {
            ChangeMembershipError::InProgress(_) => MemberError::Busy,
            ChangeMembershipError::LearnerNotFound(missing) => MemberError::Unknown { id: missing.node_id },
            ChangeMembershipError::EmptyMembership(_) => MemberError::Busy,
        }),
    }
}
