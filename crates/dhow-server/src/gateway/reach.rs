//! Whether a worker can be dialled, asked by the worker itself: it says of itself which way others reach it.

use std::net::SocketAddr;

use dhow_core::ids::NodeId;
use dhow_wire::grpc::Refusal;
use dhow_wire::grpc::proto::{ReachReply, ReachRequest};
use futures_util::future::BoxFuture;
use tonic::Request;

use super::caller::Caller;
use super::node_gateway::GatewayState;
use super::rates::Kind;
use crate::net::identity::Identity;

/// Dials a worker's door at an address, and says why that leads to nobody or to somebody else.
pub type ReachWorker = dyn Fn(NodeId, SocketAddr) -> BoxFuture<'static, Result<(), String>> + Send + Sync;

impl GatewayState {
    /// Nothing is told of who else answers there: a worker learns no more than whether it is itself, and not often.
    pub(super) async fn reach(&self, request: &Request<ReachRequest>) -> Result<ReachReply, Refusal> {
        let caller = Caller::of(request)?;
        let (Identity::Worker(node), Some(reach)) = (caller.identity, &self.options.reach) else {
            return Err(Refusal::NotGiven("only a worker asks how it is reached".into()));
        };
        let now_ms = self.options.clock.monotonic_ms();
        if !self.rates.allow(node, Kind::Reach, now_ms) {
            return Err(Refusal::TooOften);
        }
        self.state_with(node).await?;
        let addr: Result<SocketAddr, _> = request.get_ref().api_addr.parse();
        let addr = addr.map_err(|_| Refusal::Malformed("`api_addr` is no address".into()))?;
        let reached = reach(node, addr).await;
        Ok(ReachReply {
            reached: reached.is_ok(),
            why: reached.err().unwrap_or_default(),
        })
    }
}
