//! The open sessions of this server: one for each node. A newer one ends the older.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::NodeId;
use dhow_core::lease::SessionId;
use dhow_wire::grpc::Refusal;
use tokio::sync::watch;

use super::heard::LastHeard;
use super::holder::Holder;
use crate::clock::Clock;

#[derive(Debug)]
struct Open {
    id: SessionId,
    word: watch::Sender<Word>,
    /// None for a node of the same process.
    heard: Option<LastHeard>,
}

/// What a session is told by its server.
#[derive(Clone, Debug, Default)]
pub(super) enum Word {
    #[default]
    Nothing,
    /// Its node belongs to this server.
    Move { to: NodeId },
    /// It has to end, and why. Nothing comes after it.
    Over(Refusal),
}

/// All open sessions; clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    nodes: Arc<Mutex<BTreeMap<NodeId, Open>>>,
}

impl Sessions {
    /// Opens a session, which ends the node's older one. At most one per node that the state knows.
    pub fn open(
        &self,
        (node, id): (NodeId, SessionId),
        heard: Option<LastHeard>,
        holder: Holder,
        clock: Arc<dyn Clock>,
    ) -> SessionGuard {
        let (word, told) = watch::channel(Word::Nothing);
        let open = Open {
            id,
            word,
            heard: heard.clone(),
        };
        if let Some(older) = self.nodes().insert(node, open) {
            older.word.send_replace(Word::Over(Refusal::Replaced));
        }
        SessionGuard {
            sessions: self.clone(),
            node,
            id,
            told,
            heard,
            holder,
            clock,
            is_ended_here: false,
        }
    }

    /// Tells a session that it has to end, where it is still this one.
    pub fn end(&self, node: NodeId, id: SessionId, why: Refusal) {
        if let Some(open) = self.nodes().get(&node).filter(|open| open.id == id) {
            open.word.send_replace(Word::Over(why));
        }
    }

    /// Tells a session that its node belongs to another server, where it is still this one and does not end.
    pub fn move_to(&self, node: NodeId, id: SessionId, to: NodeId) {
        if let Some(open) = self.nodes().get(&node).filter(|open| open.id == id) {
            open.word.send_if_modified(|word| {
                let goes_on = !matches!(word, Word::Over(_));
                if goes_on {
                    *word = Word::Move { to };
                }
                goes_on
            });
        }
    }

    /// When anything last came from any node but this one.
    pub fn heard_but_for(&self, own: NodeId) -> Option<u64> {
        let nodes = self.nodes();
        let others = nodes.iter().filter(|(node, _)| **node != own);
        others
            .filter_map(|(_, open)| open.heard.as_ref())
            .map(LastHeard::ms)
            .max()
    }

    pub fn len(&self) -> usize {
        self.nodes().len()
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<NodeId, Open>> {
        // Changed by single inserts and removes, so one left by a panic is whole.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open session. Dropped before the server has ended it, it broke: that is evidence against its node.
pub(super) struct SessionGuard {
    sessions: Sessions,
    node: NodeId,
    id: SessionId,
    told: watch::Receiver<Word>,
    heard: Option<LastHeard>,
    holder: Holder,
    clock: Arc<dyn Clock>,
    is_ended_here: bool,
}

impl SessionGuard {
    /// The next word for the session.
    pub async fn word(&mut self) -> Word {
        match self.told.changed().await {
            Ok(()) => self.told.borrow_and_update().clone(),
            // Its place was taken.
            Err(_) => Word::Over(Refusal::Replaced),
        }
    }

    /// The server ends it: nothing can be said of the node.
    pub fn end_here(&mut self) {
        self.is_ended_here = true;
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let mut nodes = self.sessions.nodes();
        let is_newest = nodes.get(&self.node).is_some_and(|open| open.id == self.id);
        if is_newest {
            nodes.remove(&self.node);
        }
        drop(nodes);
        let last_sign_ms = match &self.heard {
            Some(heard) => heard.ms(),
            None => self.clock.monotonic_ms(),
        };
        if self.is_ended_here || !is_newest {
            self.holder.ended(self.node, self.id, last_sign_ms);
            return;
        }
        tracing::debug!(node = %self.node, "the session of a node broke");
        self.holder.broke(self.node, self.id, last_sign_ms);
    }
}
