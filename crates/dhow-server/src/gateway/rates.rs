//! How often each node may ask. Kept by proven identity, across sessions: a node does not gain by reconnecting.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dhow_core::ids::NodeId;

use super::limits::{
    CALLS_BURST, CALLS_PER_SECOND, JOINS_BURST, JOINS_PER_SECOND, RATES_MAX, REACH_SECS, REACHES_BURST,
    RENEWAL_SECS, RENEWALS_BURST, REPORT_BYTES_BURST, REPORT_BYTES_PER_SECOND, SECRETS_BURST,
    SECRETS_PER_SECOND,
};
use crate::net::bucket::Bucket;

/// What is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Call,
    Secrets,
    Renewal,
    Reach,
}

#[derive(Clone, Copy, Debug)]
struct Rates {
    calls: Bucket,
    secrets: Bucket,
    /// In seconds: a renewal takes a minute of it.
    renewals: Bucket,
    /// The same for questions whether it can be dialled.
    reaches: Bucket,
    report_bytes: Bucket,
    /// It has called, and was not only spoken of.
    has_asked: bool,
}

impl Rates {
    fn new(now_ms: u64) -> Self {
        Self {
            calls: Bucket::new(CALLS_PER_SECOND, CALLS_BURST, now_ms),
            secrets: Bucket::new(SECRETS_PER_SECOND, SECRETS_BURST, now_ms),
            renewals: Bucket::new(1, RENEWALS_BURST * RENEWAL_SECS, now_ms),
            reaches: Bucket::new(1, REACHES_BURST * REACH_SECS, now_ms),
            report_bytes: Bucket::new(REPORT_BYTES_PER_SECOND, REPORT_BYTES_BURST, now_ms),
            has_asked: false,
        }
    }

    /// Nothing would be lost by making it anew.
    fn is_quiet(&mut self, now_ms: u64) -> bool {
        let buckets = [
            &mut self.calls,
            &mut self.secrets,
            &mut self.renewals,
            &mut self.reaches,
            &mut self.report_bytes,
        ];
        buckets.into_iter().all(|bucket| bucket.is_full(now_ms))
    }
}

/// The limits on what each node may ask and write, by its proven id. All ports of a server share one.
#[derive(Debug, Default)]
pub(super) struct NodeRates {
    nodes: Mutex<BTreeMap<NodeId, Rates>>,
}

impl NodeRates {
    /// Whether the node may ask now.
    pub fn allow(&self, node: NodeId, kind: Kind, now_ms: u64) -> bool {
        self.with(node, now_ms, |rates| {
            rates.has_asked = true;
            match kind {
                Kind::Call => rates.calls.take(now_ms),
                Kind::Secrets => rates.secrets.take(now_ms),
                Kind::Renewal => rates.renewals.take_many(RENEWAL_SECS, now_ms),
                Kind::Reach => rates.reaches.take_many(REACH_SECS, now_ms),
            }
        })
    }

    /// Whether so much of what the node says may be written now.
    pub fn allow_bytes(&self, node: NodeId, bytes: u32, now_ms: u64) -> bool {
        self.with(node, now_ms, |rates| rates.report_bytes.take_many(bytes, now_ms))
    }

    /// Whether the node has called this server, as far as that is remembered.
    pub fn has_asked(&self, node: NodeId) -> bool {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.get(&node).is_some_and(|rates| rates.has_asked)
    }

    fn with(&self, node: NodeId, now_ms: u64, take: impl FnOnce(&mut Rates) -> bool) -> bool {
        // Each bucket is whole at any time, so one left by a panic is sound.
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.len() >= RATES_MAX && !nodes.contains_key(&node) {
            nodes.retain(|_, rates| !rates.is_quiet(now_ms));
            if nodes.len() >= RATES_MAX {
                return false;
            }
        }
        take(nodes.entry(node).or_insert_with(|| Rates::new(now_ms)))
    }
}

/// Who asks to join, as far as that can be said before its token is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joiner {
    /// It names a token of this cluster that is still good for somebody.
    Awaited,
    /// Anybody can say what it says.
    Stranger,
}

/// How many may ask to join, all together: strangers apart from those who are awaited, so that they keep none of these out.
#[derive(Debug, Default)]
pub(super) struct JoinRate {
    awaited: Mutex<Option<Bucket>>,
    strangers: Mutex<Option<Bucket>>,
}

impl JoinRate {
    pub fn allow(&self, joiner: Joiner, now_ms: u64) -> bool {
        let bucket = match joiner {
            Joiner::Awaited => &self.awaited,
            Joiner::Stranger => &self.strangers,
        };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket
            .get_or_insert_with(|| Bucket::new(JOINS_PER_SECOND, JOINS_BURST, now_ms))
            .take(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_and_kind_has_its_own() {
        let rates = NodeRates::default();
        let allowed = |node, kind| (0..2_000).filter(|_| rates.allow(NodeId(node), kind, 0)).count();
        assert_eq!(allowed(1, Kind::Call), CALLS_BURST as usize);
        assert_eq!(allowed(1, Kind::Secrets), SECRETS_BURST as usize);
        assert_eq!(allowed(2, Kind::Call), CALLS_BURST as usize);
        assert_eq!(allowed(1, Kind::Renewal), RENEWALS_BURST as usize);
        assert!(!rates.allow(NodeId(1), Kind::Renewal, 59_999));
        assert!(rates.allow(NodeId(1), Kind::Renewal, 60_000));
    }

    #[test]
    fn a_worker_writes_its_burst_and_then_at_its_rate() {
        let rates = NodeRates::default();
        let node = NodeId(1);
        assert!(!rates.has_asked(node));
        assert!(
            rates.allow_bytes(node, u32::MAX, 0),
            "the largest report always gets its turn"
        );
        assert!(!rates.allow_bytes(node, 1, 0));
        assert!(rates.allow_bytes(node, REPORT_BYTES_PER_SECOND, 1_000));
        assert!(!rates.allow_bytes(node, 1_000, 1_000));
        assert!(rates.allow_bytes(NodeId(2), 1_000, 1_000), "each has its own");
        assert!(!rates.has_asked(node), "being spoken of is not asking");
        rates.allow(node, Kind::Call, 1_000);
        assert!(rates.has_asked(node));
    }

    #[test]
    fn the_quiet_are_forgotten_and_the_busy_are_not() {
        let rates = NodeRates::default();
        for node in 0..RATES_MAX as u64 {
            assert!(rates.allow(NodeId(node), Kind::Call, 0));
        }
        assert!(
            !rates.allow(NodeId(u64::MAX), Kind::Call, 0),
            "all have just asked"
        );
        assert!(rates.allow(NodeId(u64::MAX), Kind::Call, 60_000));
        assert_eq!(rates.nodes.lock().unwrap().len(), 1);
    }
}
