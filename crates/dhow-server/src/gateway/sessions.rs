//! The open sessions: one for each node. A newer one ends the older.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::NodeId;
use tokio_util::sync::CancellationToken;

use super::heard::LastHeard;
use crate::clock::Clock;
use crate::leases::LeaseKeeper;

#[derive(Debug)]
struct Open {
    number: u64,
    replaced: CancellationToken,
}

#[derive(Debug, Default)]
struct Table {
    nodes: BTreeMap<NodeId, Open>,
    opened: u64,
}

/// See the module; clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    table: Arc<Mutex<Table>>,
}

impl Sessions {
    /// Opens a session, which ends the node's older one. At most one per node that the state knows.
    pub fn open(
        &self,
        node: NodeId,
        heard: Option<LastHeard>,
        leases: LeaseKeeper,
        clock: Arc<dyn Clock>,
    ) -> SessionGuard {
        let replaced = CancellationToken::new();
        let mut table = self.table();
        table.opened += 1;
        let number = table.opened;
        let open = Open {
            number,
            replaced: replaced.clone(),
        };
        if let Some(older) = table.nodes.insert(node, open) {
            older.replaced.cancel();
        }
        SessionGuard {
            sessions: self.clone(),
            node,
            number,
            replaced,
            heard,
            leases,
            clock,
            is_ended_here: false,
        }
    }

    pub fn len(&self) -> usize {
        self.table().nodes.len()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Changed by single inserts and removes, so one left by a panic is whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open session. Dropped before the server has ended it, it broke: that is evidence against its node.
pub(super) struct SessionGuard {
    sessions: Sessions,
    node: NodeId,
    number: u64,
    replaced: CancellationToken,
    heard: Option<LastHeard>,
    leases: LeaseKeeper,
    clock: Arc<dyn Clock>,
    is_ended_here: bool,
}

impl SessionGuard {
    /// Resolves once a newer session has taken over.
    pub async fn replaced(&self) {
        self.replaced.cancelled().await;
    }

    /// The server ends it: nothing can be said of the node.
    pub fn end_here(&mut self) {
        self.is_ended_here = true;
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let mut table = self.sessions.table();
        let is_newest = table
            .nodes
            .get(&self.node)
            .is_some_and(|open| open.number == self.number);
        if is_newest {
            table.nodes.remove(&self.node);
        }
        drop(table);
        if self.is_ended_here || !is_newest {
            return;
        }
        let last_sign_ms = match &self.heard {
            Some(heard) => heard.ms(),
            None => self.clock.monotonic_ms(),
        };
        tracing::debug!(node = %self.node, "the session of a node broke");
        self.leases.session_broke(self.node, last_sign_ms);
    }
}
