//! Placement as it is described, without any thought of speed: every node is judged by its strings and
//! scored anew for every replica.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use super::world::{OURS, World};
use crate::ids::NodeId;
use crate::placement::{NodeRow, Occupant, Openness};
use crate::spec::{AffinityMode, NodeMode};

pub struct Naive<'a> {
    world: &'a World,
    pub nodes: Vec<NodeRow>,
    own: BTreeMap<NodeId, u32>,
}

impl<'a> Naive<'a> {
    pub fn new(world: &'a World) -> Self {
        let mut own = BTreeMap::new();
        for (id, count) in &world.present {
            *own.entry(*id).or_default() += count;
        }
        Self {
            world,
            nodes: world.nodes.clone(),
            own,
        }
    }

    pub fn place(&mut self, wanted: u32) -> Vec<NodeId> {
        let mut chosen = Vec::new();
        while chosen.len() < wanted as usize {
            let rest = wanted - chosen.len() as u32;
            let feasible = (0..self.nodes.len()).filter(|at| self.feasible(&self.nodes[*at]));
            let Some(at) = feasible.min_by(|a, b| self.compare(&self.nodes[*a], &self.nodes[*b], rest))
            else {
                break;
            };
            let node = &mut self.nodes[at];
            node.used = node.used.plus(self.world.demand);
            node.replicas += 1;
            match self.world.spec.node_mode {
                NodeMode::Shared => {}
                NodeMode::Dedicated => node.occupant = Occupant::Dedicated(OURS),
                NodeMode::Exclusive => node.occupant = Occupant::Exclusive(OURS),
            }
            chosen.push(node.id);
            *self.own.entry(node.id).or_default() += 1;
        }
        chosen
    }

    pub fn open_to_it(&self, node: &NodeRow) -> bool {
        let (world, spec) = (self.world, &self.world.spec);
        let labels_met = spec
            .node_selector
            .labels
            .iter()
            .all(|(key, value)| node.labels.get(key) == Some(value));
        let os_met = spec.platform.os.as_ref().is_none_or(|os| **os == *node.os);
        let arch_met = spec
            .platform
            .arch
            .as_ref()
            .is_none_or(|arch| **arch == *node.arch);
        let others = node.replicas.saturating_sub(self.own(node));
        let modes_kept = match spec.node_mode {
            NodeMode::Shared => true,
            NodeMode::Dedicated => others == 0,
            NodeMode::Exclusive => others == 0 && self.own(node) == 0,
        };
        let occupant_agrees = match node.occupant {
            Occupant::Nobody => true,
            Occupant::Dedicated(service) => service == OURS,
            Occupant::Exclusive(_) => false,
        };
        node.open == Openness::Open
            && labels_met
            && os_met
            && arch_met
            && modes_kept
            && occupant_agrees
            && world.bound_to.is_none_or(|bound| bound == node.id)
            && !world.avoid.contains(&node.id)
    }

    pub fn feasible(&self, node: &NodeRow) -> bool {
        self.open_to_it(node) && node.free().covers(self.world.demand)
    }

    /// How many fit, by trying.
    pub fn room(&self, node: &NodeRow, most: u32) -> u32 {
        let mut node = node.clone();
        let mut room = 0;
        while room < most && node.free().covers(self.world.demand) {
            node.used = node.used.plus(self.world.demand);
            room += 1;
            if self.world.spec.node_mode == NodeMode::Exclusive {
                break;
            }
        }
        room
    }

    fn own(&self, node: &NodeRow) -> u32 {
        self.own.get(&node.id).copied().unwrap_or(0)
    }

    fn zone<'n>(&self, node: &'n NodeRow) -> Option<&'n String> {
        let affinity = &self.world.spec.affinity;
        affinity.spread_by.as_ref().and_then(|key| node.labels.get(key))
    }

    fn zone_key(&self, node: &NodeRow) -> (u32, bool) {
        if self.world.spec.affinity.spread_by.is_none() {
            return (0, false);
        }
        let zone = self.zone(node);
        let here = self.nodes.iter().filter(|other| self.zone(other) == zone);
        (here.map(|other| self.own(other)).sum(), zone.is_none())
    }

    fn liked(&self, node: &NodeRow) -> usize {
        let prefer = self.world.spec.node_selector.prefer_labels.iter();
        prefer
            .filter(|(key, value)| node.labels.get(*key) == Some(value))
            .count()
    }

    /// Less is better.
    fn compare(&self, a: &NodeRow, b: &NodeRow, rest: u32) -> Ordering {
        let zones = self.zone_key(a).cmp(&self.zone_key(b));
        let shares = compare_shares(self.share(a), self.share(b));
        let ids = a.id.cmp(&b.id);
        match self.world.spec.affinity.mode {
            AffinityMode::Spread | AffinityMode::Pin => {
                let key = |node: &NodeRow| (Reverse(self.liked(node)), self.own(node));
                let nodes = key(a).cmp(&key(b));
                zones
                    .then(nodes)
                    .then(shares)
                    .then(a.replicas.cmp(&b.replicas))
                    .then(ids)
            }
            AffinityMode::Pack => {
                let key = |node: &NodeRow| (Reverse(self.own(node)), Reverse(self.liked(node)));
                let nodes = key(a).cmp(&key(b));
                zones
                    .then(nodes)
                    .then(self.compare_room(a, b, rest))
                    .then(shares.reverse())
                    .then(ids)
            }
        }
    }

    fn compare_room(&self, a: &NodeRow, b: &NodeRow, rest: u32) -> Ordering {
        const MANY: u32 = 64;
        let (a, b) = (self.room(a, MANY), self.room(b, MANY));
        let whole_batch = self.world.spec.affinity.spread_by.is_none();
        match (whole_batch && a >= rest, whole_batch && b >= rest) {
            (true, true) => a.cmp(&b),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => b.cmp(&a),
        }
    }

    /// The dominant share with one more, as a fraction.
    fn share(&self, node: &NodeRow) -> (u128, u128) {
        let used = node.used.plus(self.world.demand);
        let one = |used: u64, capacity: u64| match (used, capacity) {
            (0, 0) => (1, 1),
            (_, 0) => (u128::from(u64::MAX) + 1, 1),
            (used, capacity) => (u128::from(used), u128::from(capacity)),
        };
        let cpu = one(used.cpu_milli, node.capacity.cpu_milli);
        let memory = one(used.memory_bytes, node.capacity.memory_bytes);
        if compare_shares(cpu, memory) == Ordering::Less {
            memory
        } else {
            cpu
        }
    }
}

fn compare_shares(a: (u128, u128), b: (u128, u128)) -> Ordering {
    // Below 2^65 times below 2^64 can pass 2^128, but only where one denominator is 1; the parts are compared
    // whole and remainder apart instead.
    let (a_whole, b_whole) = (a.0 / a.1, b.0 / b.1);
    a_whole
        .cmp(&b_whole)
        .then_with(|| (a.0 % a.1 * b.1).cmp(&(b.0 % b.1 * a.1)))
}
