//! The handle of an open raft log.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};

use super::admission::Admission;
use super::engine::Engine;
use super::handler::RaftPeerHandler;
use super::proposer::Proposal;
use crate::net::peers::PeerHandler;
use crate::plane::log::{Leadership, ProposeError};

/// A raft log; clones are handles of the same one. It closes when the last is dropped, or by [`RaftLog::shutdown`],
/// which also waits.
#[derive(Clone)]
pub struct RaftLog {
    pub(super) inner: Arc<RaftHandles>,
}

/// What the clones of a raft log share. The tasks do not hold it, so that they end with the last clone.
pub(super) struct RaftHandles {
    pub engine: Arc<Engine>,
    pub proposals: mpsc::Sender<Proposal>,
    /// One wake-up is enough, however many snapshots were made.
    pub compactions: mpsc::Sender<()>,
    pub is_closed: watch::Receiver<bool>,
}

impl Drop for RaftHandles {
    fn drop(&mut self) {
        self.engine.shared.cancel.cancel();
    }
}

impl fmt::Debug for RaftLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftLog")
            .field("node_id", &self.node_id())
            .finish_non_exhaustive()
    }
}

impl RaftLog {
    pub(super) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// This node.
    pub fn node_id(&self) -> u64 {
        self.engine().shared.node_id
    }

    /// Answers other servers. It does not keep the log open.
    pub fn handler(&self) -> Arc<dyn PeerHandler> {
        Arc::new(RaftPeerHandler {
            engine: Arc::clone(&self.inner.engine),
        })
    }

    /// Follows who leads, as far as this node can be sure.
    pub fn leaderships(&self) -> watch::Receiver<Leadership> {
        self.engine().shared.leadership.subscribe()
    }

    /// Follows whether this node is part of a cluster.
    pub fn admissions(&self) -> watch::Receiver<Admission> {
        self.engine().shared.admission.subscribe()
    }

    /// Whether a server was met under this id that is not the one that this node knows.
    pub fn is_stranger(&self, node: u64) -> bool {
        self.engine().shared.strangers.has(node)
    }

    /// The index that must be applied before a read sees everything that was acknowledged before this was called.
    /// Only where this node leads; others are told who does.
    pub async fn barrier(&self) -> Result<u64, ProposeError> {
        self.engine().barriers.wait().await
    }

    /// Ends all tasks and closes the store. Whoever still waits for a proposal does not hear of it any more.
    pub async fn shutdown(&self) {
        self.engine().shared.cancel.cancel();
        let mut is_closed = self.inner.is_closed.clone();
        // The task that closes is gone only with its runtime, and then there is nothing left to wait for.
        let _ = is_closed.wait_for(|is_closed| *is_closed).await;
    }
}

impl PeerHandler for RaftLog {
    fn answer(&self, from: u64, question: Bytes) -> BoxFuture<'_, Bytes> {
        Box::pin(self.engine().answer(from, question))
    }
}
