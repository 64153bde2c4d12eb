//! Who calls.

use dhow_core::ids::NodeId;
use dhow_wire::grpc::{NODE_CLAIM_KEY, Refusal};
use tonic::Request;

use super::heard::LastHeard;
use crate::api::Peer;
use crate::identity::Identity;

/// A caller whose identity is proved, or believed as far as the server was told to.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub identity: Identity,
    /// Where whoever serves the connection notes it.
    pub heard: Option<LastHeard>,
}

impl Caller {
    /// From the request's extensions alone; with `trusts_claims` a caller from loopback may say who it is.
    pub fn of<T>(request: &Request<T>, trusts_claims: bool) -> Result<Self, Refusal> {
        let identity = match request.extensions().get::<Peer>() {
            Some(Peer::Tls {
                identity: Some(identity),
                ..
            }) => *identity,
            Some(Peer::Tcp(addr)) if trusts_claims && addr.ip().is_loopback() => claimed(request)?,
            Some(Peer::Unix { .. }) if trusts_claims => claimed(request)?,
            Some(Peer::Tls { identity: None, .. } | Peer::Tcp(_) | Peer::Unix { .. }) | None => {
                return Err(Refusal::Identity(
                    "show a certificate of this cluster: without one nobody is a node".into(),
                ));
            }
        };
        Ok(Self {
            identity,
            heard: request.extensions().get().cloned(),
        })
    }

    pub fn node(&self) -> NodeId {
        match self.identity {
            Identity::Member(node) | Identity::Worker(node) => node,
        }
    }

    /// A number in a message must be the caller's own, or absent.
    pub fn check_named(&self, node_id: u64) -> Result<(), Refusal> {
        if node_id == 0 || node_id == self.node().0 {
            return Ok(());
        }
        Err(Refusal::Identity(format!(
            "the certificate is of node {}, the message speaks for node {node_id}",
            self.node()
        )))
    }
}

fn claimed<T>(request: &Request<T>) -> Result<Identity, Refusal> {
    let claim = request.metadata().get(NODE_CLAIM_KEY);
    let claim = claim.and_then(|value| value.to_str().ok()?.parse().ok());
    match claim {
        Some(node) if node > 0 => Ok(Identity::Member(NodeId(node))),
        Some(_) | None => Err(Refusal::Identity(format!(
            "say which node you are in `{NODE_CLAIM_KEY}`"
        ))),
    }
}
