//! Placement as it is described, without any thought of speed: every node is judged by its strings and
//! scored anew for every replica.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use super::world::{OURS, World};
use crate::ids::NodeId;
use crate::placement::{Company, NodeRow, Occupant, Openness, Wish};
use crate::spec::{AffinityMode, NodeMode};

pub struct Naive<'a> {
    world: &'a World,
    pub nodes: Vec<NodeRow>,
    own: BTreeMap<NodeId, u32>,
    held: BTreeMap<NodeId, u32>,
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
            held: world.held.iter().copied().collect(),
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
            *self.held.entry(node.id).or_default() += 1;
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
        let rules_met = spec
            .node_selector
            .rules
            .iter()
            .all(|rule| rule.is_met_by(node.labels.get(&rule.label).map(String::as_str)));
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
            && rules_met
            && self.keeps_rules(node)
            && os_met
            && arch_met
            && modes_kept
            && occupant_agrees
            && world.bound_to.is_none_or(|bound| bound == node.id)
            && !world.avoid.contains(&node.id)
    }

    fn held(&self, node: &NodeRow) -> u32 {
        self.held.get(&node.id).copied().unwrap_or(0)
    }

    /// Whether one more on the node breaks no rule about several nodes.
    pub fn keeps_rules(&self, node: &NodeRow) -> bool {
        let spec = &self.world.spec;
        let in_group = |label: &String, value: &String| {
            let group = self
                .nodes
                .iter()
                .filter(|other| other.labels.get(label) == Some(value));
            group.map(|other| self.held(other)).sum::<u32>()
        };
        let per_label = spec.max_per.iter().all(|(label, max)| {
            let value = node.labels.get(label);
            value.is_some_and(|value| in_group(label, value) < *max)
        });
        let required = self.world.company.iter().filter(|company| company.required);
        spec.max_per_node.is_none_or(|max| self.held(node) < max)
            && per_label
            && required.into_iter().all(|company| self.meets(company, node))
    }

    fn meets(&self, company: &Company, node: &NodeRow) -> bool {
        let same_place = |other: NodeId| {
            let found = self.nodes.iter().find(|row| row.id == other);
            found.is_some_and(|other| match &company.by {
                None => other.id == node.id,
                Some(label) => {
                    let value = other.labels.get(label);
                    other.id == node.id || (value.is_some() && value == node.labels.get(label))
                }
            })
        };
        let beside = company.nodes.iter().any(|other| same_place(*other));
        beside == (company.wish == Wish::Near)
    }

    pub fn feasible(&self, node: &NodeRow) -> bool {
        self.open_to_it(node) && node.free().covers(self.world.demand)
    }

    /// How many fit, by trying.
    pub fn room(&self, node: &NodeRow, most: u32) -> u32 {
        let max = self.world.spec.max_per_node.unwrap_or(u32::MAX);
        let most = most.min(max.saturating_sub(self.held(node)));
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

    /// How much a zone has in relation to what it is to have, as a fraction; over 0 where it is to have nothing.
    fn zone_key(&self, node: &NodeRow) -> ((u64, u64), bool) {
        let spec = &self.world.spec;
        let Some(label) = &spec.affinity.spread_by else {
            return ((0, 1), false);
        };
        let zone = self.zone(node);
        let here = self.nodes.iter().filter(|other| self.zone(other) == zone);
        let count: u32 = here.map(|other| self.own(other)).sum();
        if spec.spread_percent.is_empty() {
            return ((u64::from(count), 1), zone.is_none());
        }
        let Some(zone) = zone else {
            return ((u64::from(count), 0), true);
        };
        let values: BTreeSet<&String> = self
            .nodes
            .iter()
            .filter_map(|node| node.labels.get(label))
            .collect();
        let unnamed = values
            .iter()
            .filter(|value| !spec.spread_percent.contains_key(**value))
            .count()
            .max(1);
        let named: u32 = spec.spread_percent.values().map(|share| share.hundredths()).sum();
        let weight = match spec.spread_percent.get(zone) {
            Some(share) => u64::from(share.hundredths()) * unnamed as u64,
            None => u64::from(100 - named),
        };
        ((2 * u64::from(count) + 1, weight), false)
    }

    fn liked(&self, node: &NodeRow) -> usize {
        let prefer = self.world.spec.node_selector.prefer_labels.iter();
        prefer
            .filter(|(key, value)| node.labels.get(*key) == Some(value))
            .count()
            + self
                .world
                .company
                .iter()
                .filter(|company| !company.required && self.meets(company, node))
                .count()
    }

    /// Less is better.
    fn compare(&self, a: &NodeRow, b: &NodeRow, rest: u32) -> Ordering {
        let ((a_count, a_weight), a_bare) = self.zone_key(a);
        let ((b_count, b_weight), b_bare) = self.zone_key(b);
        let zones = match (a_weight, b_weight) {
            (0, 0) => Ordering::Equal,
            (0, _) => Ordering::Greater,
            (_, 0) => Ordering::Less,
            (_, _) => (a_count * b_weight).cmp(&(b_count * a_weight)),
        };
        let zones = zones.then(a_bare.cmp(&b_bare));
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
        let spec = &self.world.spec;
        let whole_batch = spec.affinity.spread_by.is_none() && spec.max_per.is_empty();
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
