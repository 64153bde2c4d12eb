//! The same rules written down as plainly as they can be, and random histories through both.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use crate::lease::testing::config as rounds;

#[derive(Clone, Copy)]
struct Plain {
    renewed_ms: u64,
    deadline_ms: u64,
    grace_ms: u64,
    heard_since_hold: bool,
}

struct Model {
    config: AdaptiveTtlConfig,
    now_ms: u64,
    leases: BTreeMap<NodeId, Plain>,
    /// When evidence on a node came in that no heartbeat has answered.
    evidence_ms: BTreeMap<NodeId, u64>,
}

impl Model {
    fn grace_ms(&self) -> u64 {
        u64::from(self.config.grace_secs) * 1_000
    }

    fn renew(&mut self, node: NodeId, now_ms: u64, ttl_secs: u32) -> Renewal {
        self.now_ms = self.now_ms.max(now_ms);
        self.evidence_ms.remove(&node);
        let ttl_ms = u64::from(ttl_secs) * 1_000;
        let lease = Plain {
            renewed_ms: self.now_ms,
            deadline_ms: self.now_ms.saturating_add(ttl_ms).saturating_add(self.grace_ms()),
            grace_ms: self.grace_ms(),
            heard_since_hold: true,
        };
        match self.leases.insert(node, lease) {
            Some(_) => Renewal::Renewed,
            None => Renewal::Opened,
        }
    }

    fn evidence(&mut self, node: NodeId, last_sign_ms: u64, now_ms: u64) -> Option<LeaseAlarm> {
        self.now_ms = self.now_ms.max(now_ms);
        let lease = self.leases.get_mut(&node)?;
        if !lease.heard_since_hold || last_sign_ms < lease.renewed_ms {
            return None;
        }
        let ends_ms = last_sign_ms.saturating_add(lease.grace_ms);
        lease.deadline_ms = lease.deadline_ms.min(ends_ms);
        self.evidence_ms.insert(node, self.now_ms);
        let oldest_ms = self.now_ms.saturating_sub(self.grace_ms().max(1_000));
        self.evidence_ms.retain(|_, at_ms| *at_ms >= oldest_ms);
        let silent = self.evidence_ms.len();
        let gone = self
            .evidence_ms
            .keys()
            .filter(|node| !self.leases.contains_key(node));
        let nodes = self.leases.len() + gone.count();
        if nodes < 20 || 2 * silent <= nodes {
            return None;
        }
        self.hold();
        Some(LeaseAlarm::ManySilent { silent, nodes })
    }

    fn hold(&mut self) {
        let failover_ms = u64::from(self.config.failover_ttl_secs) * 1_000;
        let deadline_ms = self
            .now_ms
            .saturating_add(failover_ms)
            .saturating_add(self.grace_ms());
        self.evidence_ms.clear();
        for lease in self.leases.values_mut() {
            lease.deadline_ms = lease.deadline_ms.max(deadline_ms);
            lease.heard_since_hold = false;
        }
    }

    fn elect(&mut self, now_ms: u64, nodes: &[NodeId]) {
        self.leases.clear();
        self.evidence_ms.clear();
        self.now_ms = self.now_ms.max(now_ms);
        for node in nodes {
            self.renew(*node, self.now_ms, self.config.failover_ttl_secs);
        }
        for lease in self.leases.values_mut() {
            lease.renewed_ms = 0;
        }
    }

    fn advance(&mut self, now_ms: u64, due_ms: u64) -> Ticked {
        if now_ms < self.now_ms {
            return Ticked::default();
        }
        self.now_ms = now_ms;
        let late_ms = now_ms.saturating_sub(due_ms);
        if late_ms > self.grace_ms().max(1_000) / 2 && !self.leases.is_empty() {
            self.hold();
            return Ticked {
                expired: Vec::new(),
                alarm: Some(LeaseAlarm::LateTimer { late_ms }),
            };
        }
        let (gone, live) = self
            .leases
            .iter()
            .partition(|(_, lease)| now_ms > lease.deadline_ms);
        self.leases = live;
        let gone: BTreeMap<NodeId, Plain> = gone;
        Ticked {
            expired: gone.into_keys().collect(),
            alarm: None,
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Renew { node: u64, ttl_secs: u32 },
    Evidence { node: u64, sign_ago_ms: i64 },
    ManyEvidence { from: u64, to: u64, sign_ago_ms: i64 },
    Remove { node: u64 },
    Advance { late_ms: u64 },
    Elect { nodes: u64 },
}

const NODES: u64 = 26;

fn op() -> impl Strategy<Value = Op> {
    let ttl = prop_oneof![4 => 0..30_u32, 1 => any::<u32>()];
    let sign_ago = prop_oneof![4 => 0..12_000_i64, 1 => any::<i64>()];
    let late = prop_oneof![6 => Just(0_u64), 1 => 0..8_000_u64, 1 => any::<u64>()];
    prop_oneof![
        8 => (0..NODES, ttl).prop_map(|(node, ttl_secs)| Op::Renew { node, ttl_secs }),
        4 => (0..NODES, sign_ago.clone()).prop_map(|(node, sign_ago_ms)| Op::Evidence { node, sign_ago_ms }),
        2 => (0..NODES, 0..NODES, sign_ago)
            .prop_map(|(from, to, sign_ago_ms)| Op::ManyEvidence { from, to, sign_ago_ms }),
        1 => (0..NODES).prop_map(|node| Op::Remove { node }),
        6 => late.prop_map(|late_ms| Op::Advance { late_ms }),
        1 => (0..=NODES).prop_map(|nodes| Op::Elect { nodes }),
    ]
}

/// How the caller's clock moves before each operation; a clock may stand still, jump or run backwards.
fn clock_ms() -> impl Strategy<Value = i64> {
    prop_oneof![6 => 0..3_000_i64, 2 => Just(0), 1 => -5_000..0_i64, 1 => 0..400_000_i64, 1 => any::<i64>()]
}

fn config() -> impl Strategy<Value = AdaptiveTtlConfig> {
    let secs = || prop_oneof![6 => 0..20_u32, 1 => any::<u32>()];
    (secs(), secs()).prop_map(|(grace_secs, failover_ttl_secs)| AdaptiveTtlConfig {
        grace_secs,
        failover_ttl_secs,
        ..AdaptiveTtlConfig::default()
    })
}

/// Does the same to both and compares what comes out.
fn apply(op: &Op, now_ms: u64, table: &mut LeaseTable, model: &mut Model) -> Result<(), TestCaseError> {
    match *op {
        Op::Renew { node, ttl_secs } => {
            let node = NodeId(node);
            prop_assert_eq!(
                table.renew(node, now_ms, ttl_secs),
                model.renew(node, now_ms, ttl_secs)
            );
        }
        Op::Evidence { node, sign_ago_ms } => {
            let (node, sign_ms) = (
                NodeId(node),
                now_ms.saturating_add_signed(sign_ago_ms.saturating_neg()),
            );
            prop_assert_eq!(
                table.evidence_of_death(node, sign_ms, now_ms),
                model.evidence(node, sign_ms, now_ms)
            );
        }
        Op::ManyEvidence {
            from,
            to,
            sign_ago_ms,
        } => {
            for node in from..to {
                apply(&Op::Evidence { node, sign_ago_ms }, now_ms, table, model)?;
            }
        }
        Op::Remove { node } => {
            let node = NodeId(node);
            model.evidence_ms.remove(&node);
            prop_assert_eq!(table.remove(node), model.leases.remove(&node).is_some());
        }
        Op::Advance { late_ms } => {
            let due_ms = now_ms.saturating_sub(late_ms);
            let ran_backwards = now_ms < model.now_ms;
            let ticked = table.advance(now_ms, due_ms);
            prop_assert!(!ran_backwards || ticked.expired.is_empty());
            prop_assert_eq!(ticked, model.advance(now_ms, due_ms));
        }
        Op::Elect { nodes } => {
            let nodes: Vec<NodeId> = (0..nodes).map(NodeId).collect();
            table.after_election(now_ms, nodes.iter().copied());
            model.elect(now_ms, &nodes);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(rounds())]

    #[test]
    fn the_table_follows_the_model(
        config in config(),
        ops in proptest::collection::vec((clock_ms(), op()), 1..120),
    ) {
        let mut table = LeaseTable::new(config);
        let mut model =
            Model { config, now_ms: 0, leases: BTreeMap::new(), evidence_ms: BTreeMap::new() };
        let all: Vec<NodeId> = (0..NODES).map(NodeId).collect();
        table.after_election(0, all.iter().copied());
        model.elect(0, &all);
        let mut now_ms = 0_u64;
        for (moves_ms, op) in ops {
            now_ms = now_ms.saturating_add_signed(moves_ms);
            apply(&op, now_ms, &mut table, &mut model)?;
            prop_assert_eq!(table.len(), model.leases.len());
            for (node, lease) in &model.leases {
                prop_assert_eq!(table.deadline_ms(*node), Some(lease.deadline_ms));
            }
            let first_ms = model.leases.values().filter_map(|lease| lease.deadline_ms.checked_add(1)).min();
            prop_assert!(table.next_wake_ms().is_none_or(|wake| first_ms.is_some_and(|first| wake <= first.max(model.now_ms))));
        }
    }
}
