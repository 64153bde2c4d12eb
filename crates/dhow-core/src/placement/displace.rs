//! Making room: which replicas of lower priority would have to go so that one of higher priority fits.

use std::cmp::Reverse;

use super::ask::Ask;
use super::closed::{Tenancy, closed};
use super::marks::{Mark, Marks};
use super::node_row::NodeRow;
use super::node_table::NodeTable;
use super::requirement::Requirement;
use super::rules::Broken;
use super::share::Share;
use crate::amount::Amount;
use crate::ids::{NodeId, ReplicaKey};

/// How far below the asking priority a victim's must lie.
pub const DISPLACE_PRIORITY_GAP: u8 = 10;

/// A replica that runs on a node and might have to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub key: ReplicaKey,
    pub priority: u8,
    pub demand: Amount,
}

/// Once the victims are gone from the node, the ask fits there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Displacement {
    pub node: NodeId,
    /// The ones to go, lowest priority first. Never empty.
    pub victims: Vec<ReplicaKey>,
}

/// What a displacement costs; the lowest is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    highest_priority: u8,
    victims: usize,
    /// How much of the node is freed beyond what is needed.
    excess: Share,
    node: NodeId,
}

impl NodeTable {
    /// The cheapest way to make room for one replica of the given priority, on a node that is open to it but
    /// lacks the room. `running` tells what runs on a node. None where nobody may be displaced, and where a
    /// node already fits: then there is nothing to displace.
    pub fn displace(
        &self,
        ask: &Ask<'_>,
        priority: u8,
        running: &dyn Fn(NodeId) -> Vec<Candidate>,
    ) -> Option<Displacement> {
        let ceiling = priority.checked_sub(DISPLACE_PRIORITY_GAP)?;
        let required = Requirement::count(ask.spec);
        let mut best: Option<(Cost, Vec<ReplicaKey>)> = None;
        for (row, mark, broken) in self.marked_rows(ask) {
            let node = self.node(row);
            if closed(ask, required, node, (&mark, broken), Tenancy::of(node, mark.own)).is_some() {
                continue;
            }
            if node.free().covers(ask.demand) {
                return None;
            }
            if !node.capacity.covers(ask.demand) {
                continue;
            }
            let mut candidates = running(node.id);
            candidates.retain(|other| other.priority <= ceiling && other.key.service != ask.service);
            let missing = missing(node, ask.demand);
            let Some(victims) = victims(candidates, missing) else {
                continue;
            };
            let found = (cost(&victims, missing, node), victims);
            if best.as_ref().is_none_or(|(cheapest, _)| found.0 < *cheapest) {
                best = Some((found.0, found.1.into_iter().map(|victim| victim.key).collect()));
            }
        }
        best.map(|(cost, victims)| Displacement {
            node: cost.node,
            victims,
        })
    }

    /// The rows that the ask may use at all, with their marks.
    fn marked_rows(&self, ask: &Ask<'_>) -> Vec<(u32, Mark, Option<Broken>)> {
        match ask.alone() {
            None => {
                let marks = Marks::new(self, ask, None);
                let marked = |row| (row, *marks.of(row), marks.broken(row));
                self.row_numbers().map(marked).collect()
            }
            Some(bound) => {
                let row = self.find(bound);
                row.map(|row| (row, Mark::of_one(self, row, ask), None))
                    .into_iter()
                    .collect()
            }
        }
    }
}

/// What has to be freed on a node so that the demand fits, where more than there is may be used already. A
/// resource that is not asked for is never missing.
fn missing(node: &NodeRow, demand: Amount) -> Amount {
    let one = |demand: u64, used: u64, capacity: u64| match demand {
        0 => 0,
        _ => demand
            .saturating_sub(capacity.saturating_sub(used))
            .saturating_add(used.saturating_sub(capacity)),
    };
    let (used, capacity) = (node.used, node.capacity);
    Amount {
        cpu_milli: one(demand.cpu_milli, used.cpu_milli, capacity.cpu_milli),
        memory_bytes: one(demand.memory_bytes, used.memory_bytes, capacity.memory_bytes),
    }
}

/// A sum that can be taken apart again: wide enough never to stop at the largest number.
#[derive(Clone, Copy, Default)]
struct Freed {
    cpu_milli: u128,
    memory_bytes: u128,
}

impl Freed {
    fn plus(self, demand: Amount) -> Self {
        Self {
            cpu_milli: self.cpu_milli + u128::from(demand.cpu_milli),
            memory_bytes: self.memory_bytes + u128::from(demand.memory_bytes),
        }
    }

    /// Without one that was added before.
    fn minus(self, demand: Amount) -> Self {
        Self {
            cpu_milli: self.cpu_milli - u128::from(demand.cpu_milli),
            memory_bytes: self.memory_bytes - u128::from(demand.memory_bytes),
        }
    }

    fn covers(self, missing: Amount) -> bool {
        self.cpu_milli >= u128::from(missing.cpu_milli)
            && self.memory_bytes >= u128::from(missing.memory_bytes)
    }
}

/// The fewest of the lowest priorities that free what is missing: lowest first until it is enough, then those
/// are spared again that turn out not to be needed, highest first. None where all together are not enough.
fn victims(mut candidates: Vec<Candidate>, missing: Amount) -> Option<Vec<Candidate>> {
    candidates.retain(|other| help(other.demand, missing) > 0);
    candidates.sort_by_key(|other| (other.priority, Reverse(help(other.demand, missing)), other.key));
    let mut freed = Freed::default();
    let mut chosen = Vec::new();
    for other in candidates {
        if freed.covers(missing) {
            break;
        }
        freed = freed.plus(other.demand);
        chosen.push(other);
    }
    if !freed.covers(missing) {
        return None;
    }
    for at in (0..chosen.len()).rev() {
        let without = freed.minus(chosen[at].demand);
        if without.covers(missing) {
            freed = without;
            chosen.remove(at);
        }
    }
    Some(chosen)
}

/// How much of what is missing a replica would free, CPU and memory each in parts of 2^32 of what is missing;
/// at least one part where it frees any.
fn help(demand: Amount, missing: Amount) -> u64 {
    let parts = |demand: u64, missing: u64| {
        let useful = u128::from(demand.min(missing));
        (useful << 32).div_ceil(u128::from(missing.max(1))) as u64
    };
    parts(demand.cpu_milli, missing.cpu_milli) + parts(demand.memory_bytes, missing.memory_bytes)
}

fn cost(victims: &[Candidate], missing: Amount, node: &NodeRow) -> Cost {
    let freed = victims
        .iter()
        .fold(Amount::ZERO, |sum, victim| sum.plus(victim.demand));
    Cost {
        highest_priority: victims.iter().map(|victim| victim.priority).max().unwrap_or(0),
        victims: victims.len(),
        excess: Share::dominant(freed.minus(missing), node.capacity),
        node: node.id,
    }
}
