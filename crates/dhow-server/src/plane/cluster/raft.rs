//! A raft cluster: a majority of the servers agrees on everything.

use std::collections::BTreeMap;

use dhow_core::ids::NodeId;
use dhow_wire::ClusterModeName;
use futures_util::future::BoxFuture;

use super::{BarrierError, Cluster, Member, MembershipError, Newcomer, latest};
use crate::net::peers::tls::TlsTransport;
use crate::plane::log::raft::{Admission, MemberError, RaftLog, RaftPeerAddrs, TransferError};
use crate::plane::runtime::RuntimeView;

/// The mode of servers with a raft log, with or without a worker tier.
pub struct RaftCluster {
    /// `raft`, or `worker-tier` for its servers.
    pub mode: ClusterModeName,
    pub node: NodeId,
    pub log: RaftLog,
    pub view: RuntimeView,
    pub transport: TlsTransport,
    /// The servers of the configuration, for the time before this one has heard of the cluster.
    pub first: BTreeMap<u64, RaftPeerAddrs>,
}

impl RaftCluster {
    /// A leader speaks with every server; another one need not have heard of all, and that is no sign against them.
    fn is_reachable(&self, node: u64) -> bool {
        let is_heard = || self.transport.last_heard(NodeId(node)).is_some();
        let leads = self.view.leadership().is_here;
        let is_there = !self.transport.is_unreachable(NodeId(node)) && (!leads || is_heard());
        node == self.node.0 || (is_there && !self.log.is_stranger(node))
    }

    /// Makes this server, where this one leads, the leader.
    pub async fn hand_over_to(&self, node: NodeId) {
        match self.log.transfer(Some(node.0)).await {
            Ok(to) => tracing::info!(to, "another server leads now"),
            Err(TransferError::NotLeader { .. }) => {}
            Err(error) => tracing::info!(%error, "the lead was not handed over"),
        }
    }

    fn member(&self, id: u64, addrs: RaftPeerAddrs, is_voter: bool) -> Member {
        Member {
            node: NodeId(id),
            api_addr: Some(addrs.api_addr),
            raft_addr: Some(addrs.raft_addr),
            is_voter,
            is_reachable: self.is_reachable(id),
        }
    }
}

impl Cluster for RaftCluster {
    fn mode(&self) -> ClusterModeName {
        self.mode
    }

    fn node_id(&self) -> NodeId {
        self.node
    }

    fn members(&self) -> Vec<Member> {
        let known = self.log.members();
        if known.is_empty() {
            let first = self.first.iter();
            return first.map(|(id, addrs)| self.member(*id, *addrs, false)).collect();
        }
        let known = known.into_iter();
        known
            .map(|member| self.member(member.id, member.addrs, member.is_voter))
            .collect()
    }

    fn barrier(&self) -> BoxFuture<'_, Result<(), BarrierError>> {
        Box::pin(latest(&self.view))
    }

    fn add(&self, newcomer: Newcomer) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(async move {
            let addrs = RaftPeerAddrs {
                raft_addr: newcomer.raft_addr,
                api_addr: newcomer.api_addr,
            };
            let id = newcomer.node.0;
            // One that was taken in before and did not catch up in time goes on from there.
            let known = self.log.members().into_iter().find(|member| member.id == id);
            let added = match known {
                Some(member) if !member.is_voter && member.addrs == addrs => self.log.promote(id).await,
                Some(_) | None => self.log.add(id, addrs).await,
            };
            added.map_err(|error| told(id, error))
        })
    }

    fn remove(&self, node: NodeId, force: bool) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(async move {
            if node == self.node && self.log.members().len() > 1 {
                // A leader that removes itself hands over first: whoever takes over removes it.
                self.hand_over().await;
                return Err(MembershipError::NotLeader);
            }
            let removed = self.log.remove(node.0, force).await;
            removed.map_err(|error| told(node.0, error))
        })
    }

    fn hand_over(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match self.log.transfer(None).await {
                Ok(to) => tracing::info!(to, "another server leads now"),
                Err(TransferError::NotLeader { .. }) => {}
                Err(error) => tracing::info!(%error, "the lead was not handed over"),
            }
        })
    }

    fn is_refused(&self) -> bool {
        matches!(*self.log.admissions().borrow(), Admission::Refused { .. })
    }

    fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        let admission = self.log.admissions().borrow().clone();
        notices.extend(admission.advice(self.node.0));
        if admission == Admission::Joining {
            notices.push(
                "this server has no part in a cluster yet: it waits until a majority of its `peers` runs, or until \
                 it is taken in with `dhow cluster add`"
                    .into(),
            );
        }
        let members = self.members();
        let voters: Vec<&Member> = members.iter().filter(|member| member.is_voter).collect();
        for member in voters.iter().filter(|member| !member.is_reachable) {
            notices.push(match self.log.is_stranger(member.node.0) {
                true => format!(
                    "server {0} has lost its raft directory and may not come back under its id: \
                     `dhow cluster remove {0}` takes it out",
                    member.node
                ),
                false => format!("server {} cannot be reached from here", member.node),
            });
        }
        if voters.len() > 1 && voters.len().is_multiple_of(2) {
            notices.push(format!(
                "{} servers survive no more failures than {} would: take one in, or out",
                voters.len(),
                voters.len() - 1
            ));
        }
        notices
    }
}

fn told(id: u64, error: MemberError) -> MembershipError {
    match error {
        MemberError::NotLeader { .. } | MemberError::Stopped => MembershipError::NotLeader,
        MemberError::Unknown { .. } => MembershipError::Unknown(NodeId(id)),
        MemberError::OutcomeUnknown => MembershipError::OutcomeUnknown(error.to_string()),
        MemberError::Known { .. }
        | MemberError::AddressTaken { .. }
        | MemberError::TooManyVoters
        | MemberError::TooManyMembers
        | MemberError::LastVoter { .. }
        | MemberError::NoQuorum { .. }
        | MemberError::Busy
        | MemberError::NotNew { .. }
        | MemberError::Unreachable { .. }
        | MemberError::NotCaughtUp { .. } => MembershipError::Refused(error.to_string()),
    }
}
