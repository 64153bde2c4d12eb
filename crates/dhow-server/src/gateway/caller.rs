//! Who calls.

use dhow_core::ids::NodeId;
use dhow_wire::grpc::Refusal;
use tonic::Request;

use super::heard::LastHeard;
use crate::net::identity::{Identity, Peer};

/// A caller whose identity is proved.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub identity: Identity,
    /// Where whoever serves the connection notes it.
    pub heard: Option<LastHeard>,
}

impl Caller {
    /// From the request's extensions alone: what the message says of its sender is not heard.
    pub fn of<T>(request: &Request<T>) -> Result<Self, Refusal> {
        let identity = match request.extensions().get::<Peer>() {
            Some(Peer::Tls {
                identity: Some(identity),
                ..
            }) => *identity,
            Some(Peer::OwnAgent(node)) => Identity::Member(*node),
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
