//! Asking without placing: why no node takes the next replica, and which nodes would take one.

use std::collections::BTreeMap;

use super::ask::Ask;
use super::closed::{Closed, Tenancy, closed};
use super::marks::{Mark, Marks, requirements};
use super::node_row::NodeRow;
use super::node_table::NodeTable;
use super::unplaced::{Bound, Hindrance, Reason, Unplaced};
use crate::ids::NodeId;
use crate::spec::{RType, ServiceSpec};

impl NodeTable {
    /// Why the next replica cannot be placed: each node counts under the first reason that holds for it.
    /// Where some node fits, the value says so.
    pub fn why_not(&self, ask: &Ask<'_>) -> Unplaced {
        let mut tally = Tally::default();
        let nodes = count(self.len());
        match ask.bound_to.map(|bound| self.find(bound)) {
            None => {
                let marks = Marks::new(self, ask, None);
                for row in self.row_numbers() {
                    tally.add(self.hindrance(ask, row, marks.of(row)), 1);
                }
            }
            Some(None) => tally.add(Some(Reason::NotItsNode), nodes),
            Some(Some(row)) => {
                tally.add(Some(Reason::NotItsNode), nodes.saturating_sub(1));
                tally.add(self.hindrance(ask, row, &Mark::of_one(self, row, ask)), 1);
            }
        }
        let bound = ask.bound_to.map(|node| match ask.spec.rtype {
            RType::System => Bound::System(node),
            RType::Service | RType::Job | RType::Cron => Bound::Volume(node),
        });
        Unplaced {
            nodes,
            fitting: tally.fitting,
            hindrances: tally.into_hindrances(),
            bound,
        }
    }

    /// Every node on which a system service's replica fits, by ascending id. The service's own replicas do not
    /// count: where it already runs, its room is its own.
    pub fn fitting(&self, ask: &Ask<'_>) -> Vec<NodeId> {
        let marks = Marks::new(self, ask, None);
        let required = requirements(ask.spec);
        let mut fitting: Vec<NodeId> = self
            .row_numbers()
            .filter_map(|row| {
                let (node, mark) = (self.node(row), marks.of(row));
                let tenancy = Tenancy::of(node, mark.own).without(ask.service);
                let has_room = mark.own > 0 || node.free().covers(ask.demand);
                (has_room && closed(ask, required, node, mark, tenancy).is_none()).then_some(node.id)
            })
            .collect();
        fitting.sort_unstable();
        fitting
    }

    /// What keeps the ask off a row; none where it fits.
    fn hindrance(&self, ask: &Ask<'_>, row: u32, mark: &Mark) -> Option<Reason> {
        let node = self.node(row);
        match closed(
            ask,
            requirements(ask.spec),
            node,
            mark,
            Tenancy::of(node, mark.own),
        ) {
            Some(Closed::NotItsNode) => Some(Reason::NotItsNode),
            Some(Closed::RunsNone) => Some(Reason::RunsNone),
            Some(Closed::Unsuitable) => Some(unsuitable(ask.spec, node)),
            Some(Closed::Unreachable) => Some(Reason::Unreachable),
            Some(Closed::Draining) => Some(Reason::Draining),
            Some(Closed::Avoided) => Some(Reason::Avoided),
            Some(Closed::HeldExclusively) => Some(Reason::HeldExclusively),
            Some(Closed::DedicatedToAnother) => Some(Reason::DedicatedToAnother),
            Some(Closed::RunsOthers) => Some(Reason::RunsOthers),
            Some(Closed::RunsAny) => Some(Reason::RunsAny),
            None => lacks_room(ask, node),
        }
    }
}

/// Which requirement the node does not meet: the platform, else the first label by name.
fn unsuitable(spec: &ServiceSpec, node: &NodeRow) -> Reason {
    let meets = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
    let platform = &spec.platform;
    let mut labels = spec.node_selector.labels.iter();
    match labels.find(|(key, value)| node.labels.get(*key) != Some(value)) {
        Some((key, value)) if meets(&platform.os, &node.os) && meets(&platform.arch, &node.arch) => {
            Reason::LacksLabel {
                key: key.clone(),
                value: value.clone(),
            }
        }
        Some(_) | None => Reason::Platform {
            os: platform.os.clone(),
            arch: platform.arch.clone(),
        },
    }
}

fn lacks_room(ask: &Ask<'_>, node: &NodeRow) -> Option<Reason> {
    let (free, asked) = (node.free(), ask.demand);
    if free.cpu_milli < asked.cpu_milli {
        return Some(Reason::Cpu {
            free_milli: free.cpu_milli,
            asked_milli: asked.cpu_milli,
        });
    }
    (free.memory_bytes < asked.memory_bytes).then_some(Reason::Memory {
        free_bytes: free.memory_bytes,
        asked_bytes: asked.memory_bytes,
    })
}

fn count(nodes: usize) -> u32 {
    u32::try_from(nodes).unwrap_or(u32::MAX)
}

/// Counts nodes by reason. Reasons of room are one each, with the most that is free.
#[derive(Default)]
struct Tally {
    fitting: u32,
    plain: BTreeMap<Reason, u32>,
    cpu: Option<Hindrance>,
    memory: Option<Hindrance>,
}

impl Tally {
    fn add(&mut self, reason: Option<Reason>, nodes: u32) {
        let Some(reason) = reason else {
            self.fitting += nodes;
            return;
        };
        if nodes == 0 {
            return;
        }
        let roomier = match &reason {
            Reason::Cpu { .. } => &mut self.cpu,
            Reason::Memory { .. } => &mut self.memory,
            Reason::NotItsNode
            | Reason::RunsNone
            | Reason::Platform { .. }
            | Reason::LacksLabel { .. }
            | Reason::Unreachable
            | Reason::Draining
            | Reason::Avoided
            | Reason::HeldExclusively
            | Reason::DedicatedToAnother
            | Reason::RunsOthers
            | Reason::RunsAny => {
                *self.plain.entry(reason).or_default() += nodes;
                return;
            }
        };
        let before = roomier.take();
        *roomier = Some(match before {
            None => Hindrance { nodes, reason },
            // What is asked is the same for all, so the larger reason is the one with more free.
            Some(before) => Hindrance {
                nodes: before.nodes + nodes,
                reason: before.reason.max(reason),
            },
        });
    }

    fn into_hindrances(self) -> Vec<Hindrance> {
        let plain = self
            .plain
            .into_iter()
            .map(|(reason, nodes)| Hindrance { nodes, reason });
        plain.chain(self.cpu).chain(self.memory).collect()
    }
}
