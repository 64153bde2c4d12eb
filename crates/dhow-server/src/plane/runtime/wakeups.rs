//! One wake-up for each node: a change of a node's assignment wakes those who wait for that node and nobody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::{NodeId, Revision};
use dhow_core::state::State;
use tokio::sync::watch;

/// One wake-up for each node whose session or long poll waits for its assignment; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct NodeWakeups {
    nodes: Arc<Mutex<BTreeMap<NodeId, watch::Sender<Revision>>>>,
}

impl NodeWakeups {
    /// Waits for changes of a node. What is received is the revision of the last change; changes from before this
    /// call are not in it, so look at the state after subscribing and before waiting.
    pub fn subscribe(&self, node: NodeId) -> watch::Receiver<Revision> {
        let mut nodes = self.nodes();
        // A node that nobody waits for any more gives up its place before the limit of nodes is passed.
        if nodes.len() >= State::NODES_MAX && !nodes.contains_key(&node) {
            nodes.retain(|_, wakeup| wakeup.receiver_count() > 0);
        }
        nodes.entry(node).or_default().subscribe()
    }

    /// Wakes those who wait for one of these nodes; gives how many nodes that are.
    pub(super) fn wake(&self, changed: &BTreeMap<NodeId, Revision>) -> usize {
        let mut nodes = self.nodes();
        let mut woken = 0;
        for (node, revision) in changed {
            if let Some(wakeup) = nodes.get(node) {
                if wakeup.receiver_count() == 0 {
                    nodes.remove(node);
                } else {
                    wakeup.send_replace(*revision);
                    woken += 1;
                }
            }
        }
        woken
    }

    /// Wakes everybody who waits; gives how many nodes that are.
    pub(super) fn wake_all(&self, revision: Revision) -> usize {
        let mut nodes = self.nodes();
        nodes.retain(|_, wakeup| wakeup.receiver_count() > 0);
        for wakeup in nodes.values() {
            wakeup.send_replace(revision);
        }
        nodes.len()
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<NodeId, watch::Sender<Revision>>> {
        // The map is changed by single inserts and removes, so a holder that panicked left it whole.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_node_that_changed_wakes() {
        let wakeups = NodeWakeups::default();
        let mut first = wakeups.subscribe(NodeId(1));
        let second = wakeups.subscribe(NodeId(2));
        wakeups.wake(&BTreeMap::from([
            (NodeId(1), Revision(7)),
            (NodeId(3), Revision(7)),
        ]));
        first.changed().await.unwrap();
        assert_eq!(*first.borrow(), Revision(7));
        assert!(!second.has_changed().unwrap());
    }

    #[test]
    fn places_of_those_who_left_are_given_up() {
        let wakeups = NodeWakeups::default();
        for node in 0..State::NODES_MAX as u64 {
            drop(wakeups.subscribe(NodeId(node)));
        }
        let kept = wakeups.subscribe(NodeId(u64::MAX));
        assert_eq!(wakeups.nodes().len(), 1);
        drop(kept);
        wakeups.wake(&BTreeMap::from([(NodeId(u64::MAX), Revision(1))]));
        assert!(wakeups.nodes().is_empty());
    }
}
