//! What differs between the modes of a cluster, as the API and the daemon need it: who else there is, what a read has
//! to wait for, how members come and go, and how a server takes its leave.
//!
//! One file for each mode. Everything else, planning, rollouts, stabilization, logs, is the same in all of them. An
//! implementation must never decide what runs where.

mod error;
mod raft;
mod single;
mod static_mode;

use std::net::SocketAddr;

use dhow_core::ids::NodeId;
use dhow_wire::ClusterModeName;
use dhow_wire::api::HealthDocument;
use futures_util::future::BoxFuture;

use crate::plane::runtime::{RuntimeView, WriteError};
use crate::plane::scale::ScaleDesk;

pub use error::{BarrierError, MembershipError};
pub use raft::RaftCluster;
pub use single::SingleNode;
pub use static_mode::StaticCluster;

/// A server of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub node: NodeId,
    /// None where it answers nobody over TCP, which is alone then.
    pub api_addr: Option<SocketAddr>,
    /// Where it takes part in consensus, in the modes that have one.
    pub raft_addr: Option<SocketAddr>,
    /// Whether it has a vote; one that is still catching up has none, and nobody has one where there is no consensus.
    pub is_voter: bool,
    /// Whether this node has heard of it lately.
    pub is_reachable: bool,
}

/// Who joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newcomer {
    pub node: NodeId,
    pub raft_addr: SocketAddr,
    pub api_addr: SocketAddr,
}

/// What the API and the daemon ask of a cluster mode: its members, a barrier for reads, changes of its members, and its
/// leave-taking. Each mode implements it.
pub trait Cluster: Send + Sync {
    fn mode(&self) -> ClusterModeName;

    fn node_id(&self) -> NodeId;

    /// All servers, this one included, by id.
    fn members(&self) -> Vec<Member>;

    /// Done once a read of the state here sees every write that was acknowledged before this was called.
    fn barrier(&self) -> BoxFuture<'_, Result<(), BarrierError>>;

    /// Takes a server in; done when it has caught up and has a vote.
    fn add(&self, newcomer: Newcomer) -> BoxFuture<'_, Result<(), MembershipError>>;

    /// Takes a server's vote away and forgets it. Where too few would be left to agree, only `force` does it.
    fn remove(&self, node: NodeId, force: bool) -> BoxFuture<'_, Result<(), MembershipError>>;

    /// Where this server leads, another one is made to, as far as that can be had; then nothing is lost by ending.
    fn hand_over(&self) -> BoxFuture<'_, ()>;

    /// What this server answers on `/health`.
    fn health(&self) -> HealthDocument {
        HealthDocument::ok()
    }

    /// Where scale requests of the leader are taken, in the mode that has them.
    fn desk(&self) -> Option<&ScaleDesk> {
        None
    }

    /// Whether the others do not take this server for the one that they know under its id.
    fn is_refused(&self) -> bool {
        false
    }

    /// What this mode cannot promise, and what is wrong at the moment, for `dhow cluster status`.
    fn notices(&self) -> Vec<String>;
}

/// Until the state here has everything that its log has committed.
async fn latest(view: &RuntimeView) -> Result<(), BarrierError> {
    match view.latest().await {
        Ok(_) => Ok(()),
        Err(WriteError::ShuttingDown) => Err(BarrierError::Ended),
        Err(_) => Err(BarrierError::NotLeader),
    }
}
