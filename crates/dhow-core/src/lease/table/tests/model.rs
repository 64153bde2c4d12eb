//! The same rules written down as plainly as they can be, and random histories through both.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use crate::lease::testing::config as rounds;

#[derive(Clone, Copy)]
struct Plain {
    renewed_ms: u64,
    ttl_ms: u64,
    due_ms: u64,
    deadline_ms: u64,
    grace_ms: u64,
    /// How many holds there had been when it was last heard.
    heard_after: u64,
    is_overdue: bool,
}

impl Plain {
    /// The last moment before something becomes of it.
    fn next_ms(&self) -> u64 {
        match self.is_overdue {
            true => self.deadline_ms,
            false => self.due_ms.min(self.deadline_ms),
        }
    }
}

struct Model {
    config: AdaptiveTtlConfig,
    now_ms: u64,
    leases: BTreeMap<NodeId, Plain>,
    /// Until when the silence of a node counts that no heartbeat has answered.
    silent_until_ms: BTreeMap<NodeId, u64>,
    holds: u64,
}

impl Model {
    fn grace_ms(&self) -> u64 {
        u64::from(self.config.grace_secs) * 1_000
    }

    fn renew(&mut self, node: NodeId, now_ms: u64, ttl_secs: u32) -> Renewal {
        self.now_ms = self.now_ms.max(now_ms);
        self.silent_until_ms.remove(&node);
        let ttl_ms = u64::from(ttl_secs) * 1_000;
        let lease = Plain {
            renewed_ms: self.now_ms,
            ttl_ms,
            due_ms: self.now_ms.saturating_add(ttl_ms),
            deadline_ms: self.now_ms.saturating_add(ttl_ms).saturating_add(self.grace_ms()),
            grace_ms: self.grace_ms(),
            heard_after: self.holds,
            is_overdue: false,
        };
        match self.leases.insert(node, lease) {
            Some(_) => Renewal::Renewed,
            None => Renewal::Opened,
        }
    }

    fn evidence(&mut self, node: NodeId, last_sign_ms: u64, now_ms: u64) -> Option<LeaseAlarm> {
        self.now_ms = self.now_ms.max(now_ms);
        let (holds, grace_ms) = (self.holds, self.grace_ms());
        let lease = self.leases.get_mut(&node)?;
        if lease.heard_after != holds || last_sign_ms < lease.renewed_ms {
            return None;
        }
        let ends_ms = last_sign_ms.saturating_add(lease.grace_ms);
        lease.deadline_ms = lease.deadline_ms.min(ends_ms);
        self.notice(node, grace_ms);
        let alarm = self.many_silent()?;
        self.hold(false);
        Some(alarm)
    }

    fn notice(&mut self, node: NodeId, window_ms: u64) {
        let until_ms = self.now_ms.saturating_add(window_ms.max(1_000));
        let known_ms = self.silent_until_ms.entry(node).or_default();
        *known_ms = until_ms.max(*known_ms);
    }

    fn many_silent(&mut self) -> Option<LeaseAlarm> {
        let now_ms = self.now_ms;
        self.silent_until_ms.retain(|_, until_ms| *until_ms >= now_ms);
        let silent = self.silent_until_ms.len();
        let gone = self.silent_until_ms.keys();
        let gone = gone.filter(|node| !self.leases.contains_key(node));
        let nodes = self.leases.len() + gone.count();
        (nodes >= 20 && 2 * silent > nodes).then_some(LeaseAlarm::ManySilent { silent, nodes })
    }

    fn hold(&mut self, is_for_all: bool) {
        let failover_ms = u64::from(self.config.failover_ttl_secs) * 1_000;
        let deadline_ms = self
            .now_ms
            .saturating_add(failover_ms)
            .saturating_add(self.grace_ms());
        self.silent_until_ms.clear();
        for lease in self.leases.values_mut() {
            if is_for_all || lease.heard_after == self.holds {
                lease.deadline_ms = lease.deadline_ms.max(deadline_ms);
            }
        }
        self.holds += 1;
    }

    fn elect(&mut self, now_ms: u64, nodes: &[NodeId]) {
        self.leases.clear();
        self.silent_until_ms.clear();
        self.holds = 0;
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
            self.hold(true);
            return Ticked {
                expired: Vec::new(),
                alarm: Some(LeaseAlarm::LateTimer { late_ms }),
            };
        }
        for (node, lease) in self.leases.clone() {
            let is_news = now_ms > lease.due_ms && !lease.is_overdue;
            if is_news && lease.heard_after == self.holds {
                self.notice(node, lease.ttl_ms.saturating_add(lease.grace_ms));
            }
            self.leases
                .entry(node)
                .and_modify(|lease| lease.is_overdue |= is_news);
        }
        let run_out = |lease: &Plain| now_ms > lease.deadline_ms;
        let holds = self.holds;
        let mut expired = self.remove_if(|lease| run_out(lease) && lease.heard_after != holds);
        let alarm = self.many_silent();
        match alarm {
            Some(_) => self.hold(false),
            None => expired.extend(self.remove_if(run_out)),
        }
        expired.sort_unstable();
        Ticked { expired, alarm }
    }

    fn remove_if(&mut self, is_gone: impl Fn(&Plain) -> bool) -> Vec<NodeId> {
        let gone = self.leases.iter().filter(|(_, lease)| is_gone(lease));
        let gone: Vec<NodeId> = gone.map(|(node, _)| *node).collect();
        self.leases.retain(|_, lease| !is_gone(lease));
        gone
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
            model.silent_until_ms.remove(&node);
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
        let mut model = Model {
            config,
            now_ms: 0,
            leases: BTreeMap::new(),
            silent_until_ms: BTreeMap::new(),
            holds: 0,
        };
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
            let first_ms = model.leases.values().filter_map(|lease| lease.next_ms().checked_add(1)).min();
            prop_assert!(table.next_wake_ms().is_none_or(|wake| first_ms.is_some_and(|first| wake <= first.max(model.now_ms))));
        }
    }
}
