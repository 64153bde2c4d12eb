//! What of nodes is on its way through a holder to the leader, bounded: one node that says much takes neither the
//! memory nor the turn of the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::NodeId;
use dhow_wire::grpc::Refusal;

use super::limits::{FORWARDED_BYTES_MAX, FORWARDED_OF_NODE_MAX};

/// Reports on their way; clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Forwarded(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    size_bytes: usize,
    of_nodes: BTreeMap<NodeId, usize>,
}

/// One report on its way to the leader, counted until it is dropped.
#[derive(Debug)]
pub(super) struct ForwardedReport {
    forwarded: Forwarded,
    node: NodeId,
    size_bytes: usize,
}

impl Forwarded {
    pub fn enter(&self, node: NodeId, size_bytes: usize) -> Result<ForwardedReport, Refusal> {
        let mut counts = self.counts();
        if counts.of_nodes.get(&node).copied().unwrap_or(0) >= FORWARDED_OF_NODE_MAX {
            return Err(Refusal::TooOften);
        }
        if counts.size_bytes.saturating_add(size_bytes) > FORWARDED_BYTES_MAX {
            return Err(Refusal::Busy);
        }
        counts.size_bytes += size_bytes;
        *counts.of_nodes.entry(node).or_default() += 1;
        Ok(ForwardedReport {
            forwarded: self.clone(),
            node,
            size_bytes,
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Every change is whole before the lock is let go of, so one left by a panic is sound.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ForwardedReport {
    fn drop(&mut self) {
        let mut counts = self.forwarded.counts();
        counts.size_bytes -= self.size_bytes;
        let left = counts.of_nodes.get_mut(&self.node).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            counts.of_nodes.remove(&self.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_takes_no_more_than_its_part() {
        let forwarded = Forwarded::default();
        let mut places: Vec<ForwardedReport> = (0..FORWARDED_OF_NODE_MAX)
            .map(|_| forwarded.enter(NodeId(7), 8).unwrap())
            .collect();
        assert_eq!(forwarded.enter(NodeId(7), 8).unwrap_err(), Refusal::TooOften);
        let other = forwarded.enter(NodeId(8), FORWARDED_BYTES_MAX - 8 * FORWARDED_OF_NODE_MAX);
        assert_eq!(forwarded.enter(NodeId(9), 1).unwrap_err(), Refusal::Busy);
        places.pop();
        assert!(forwarded.enter(NodeId(7), 8).is_ok());
        drop((places, other));
        let counts = forwarded.counts();
        assert_eq!((counts.size_bytes, counts.of_nodes.len()), (0, 0));
    }
}
