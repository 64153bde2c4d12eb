//! Asks another server's raft log, and makes sure that it is the one that is known.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::admission::Admission;
use super::entry_form::FormError;
use super::log_state::RaftLogState;
use super::wire::{Answer, Letter, Question, Refusal, decode_reply, encode_letter};
use crate::net::peers::{Lane, PeerError};
use crate::plane::log::store::StoreId;

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Peer(PeerError),
    #[error("node {node} answers with another raft directory than it had; it was emptied or replaced")]
    AnotherStore { node: u64 },
    #[error("node {node} knows this node with another raft directory")]
    NotKnown { node: u64 },
    #[error("the raft log of node {node} has stopped")]
    Stopped { node: u64 },
    #[error("node {node} did not understand the question")]
    NotUnderstood { node: u64 },
    #[error("the answer of node {node} cannot be read")]
    Unreadable {
        node: u64,
        #[source]
        cause: FormError,
    },
    #[error("node {node} answered another question")]
    OffTopic { node: u64 },
    #[error("node {node} is no member, so that nobody knows where it is")]
    Nowhere { node: u64 },
}

impl RaftLogState {
    /// Asks a node at an address.
    pub async fn ask(
        &self,
        node: u64,
        addr: SocketAddr,
        lane: Lane,
        question: Question,
        timeout: Duration,
    ) -> Result<Answer, AskError> {
        let letter = encode_letter(&Letter {
            from_store: *self.known.own().as_bytes(),
            to_store: self.known.of(node).map(|store| *store.as_bytes()),
            question,
        });
        let asked = self.transport.ask(node, addr, lane, letter, timeout);
        let bytes = match tokio::time::timeout(timeout, asked).await {
            Ok(answered) => answered.map_err(AskError::Peer)?,
            Err(_) => return Err(AskError::Peer(PeerError::TimedOut { node })),
        };
        let reply = decode_reply(&bytes).map_err(|cause| AskError::Unreadable { node, cause })?;
        let store = StoreId::from_bytes(reply.store);
        if self.known.check(node, store).is_err() {
            self.meet_stranger(node);
            return Err(AskError::AnotherStore { node });
        }
        match reply.answer {
            Answer::Refused(Refusal::AnotherSender) => {
                self.refused_by(node);
                Err(AskError::NotKnown { node })
            }
            Answer::Refused(Refusal::AnotherReceiver) => Err(AskError::AnotherStore { node }),
            Answer::Refused(Refusal::Stopped) => Err(AskError::Stopped { node }),
            Answer::Refused(Refusal::Malformed) => Err(AskError::NotUnderstood { node }),
            answer => {
                self.strangers.forget(node);
                if let Err(error) = self.learn(node, store).await {
                    tracing::warn!(%error, node, "the store of a node could not be noted");
                }
                Ok(answer)
            }
        }
    }

    /// A server is not the one that this node knows under its id.
    pub fn meet_stranger(&self, node: u64) {
        if let Some(times) = self.strangers.meet(node, Instant::now()) {
            tracing::error!(
                node,
                times,
                "a server comes with another raft directory than it has to have and is refused: it was emptied or \
                 replaced, or given up by `dhow cluster recover`; `dhow cluster remove` takes it out, and emptied it may \
                 join under a new id"
            );
        }
    }

    /// Another member does not take this node for the one that it knew.
    fn refused_by(&self, by: u64) {
        let refused = Admission::Refused { by };
        // Whoever says so first is named; the others say the same.
        let is_news = self.admission.send_if_modified(|admission| {
            let is_news = !matches!(admission, Admission::Refused { .. });
            if is_news {
                *admission = refused.clone();
            }
            is_news
        });
        if is_news && let Some(advice) = refused.advice(self.node_id) {
            tracing::error!("{advice}");
        }
    }
}
