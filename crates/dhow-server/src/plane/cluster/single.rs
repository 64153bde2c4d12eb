//! A single node: it always leads, and nobody else is asked.

use std::net::SocketAddr;

use dhow_core::ids::NodeId;
use dhow_wire::ClusterModeName;
use futures_util::future::BoxFuture;

use super::{BarrierError, Cluster, Member, MembershipError, Newcomer};

/// The mode of one node without others.
#[derive(Clone, Copy, Debug)]
pub struct SingleNode {
    pub node: NodeId,
    pub api_addr: Option<SocketAddr>,
}

const HINT: &str = "give every machine a configuration with `cluster: { mode: raft, … }` to have one";

impl SingleNode {
    fn fixed() -> MembershipError {
        MembershipError::Fixed {
            mode: ClusterModeName::SingleNode,
            hint: HINT,
        }
    }
}

impl Cluster for SingleNode {
    fn mode(&self) -> ClusterModeName {
        ClusterModeName::SingleNode
    }

    fn node_id(&self) -> NodeId {
        self.node
    }

    fn members(&self) -> Vec<Member> {
        vec![Member {
            node: self.node,
            api_addr: self.api_addr,
            raft_addr: None,
            is_voter: true,
            is_reachable: true,
        }]
    }

    fn barrier(&self) -> BoxFuture<'_, Result<(), BarrierError>> {
        // The state is published before a write is answered, and there is no other server that could have answered.
        Box::pin(std::future::ready(Ok(())))
    }

    fn add(&self, _: Newcomer) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(std::future::ready(Err(Self::fixed())))
    }

    fn remove(&self, _: NodeId, _: bool) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(std::future::ready(Err(Self::fixed())))
    }

    fn hand_over(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
}
