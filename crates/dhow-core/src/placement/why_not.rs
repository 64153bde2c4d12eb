//! Asking without placing: why no node takes the next replica, and which nodes would take one.

use std::collections::BTreeMap;

use super::ask::Ask;
use super::closed::{Closed, Tenancy, closed};
use super::marks::{Mark, Marks};
use super::node_row::NodeRow;
use super::node_table::NodeTable;
use super::requirement::Requirement;
use super::rules::Broken;
use super::unplaced::{Bound, Hindrance, Reason, Unplaced};
use crate::ids::NodeId;
use crate::spec::RType;

impl NodeTable {
    /// Why the next replica cannot be placed: each node counts under the first reason that holds for it.
    /// Where some node fits, the value says so.
    pub fn why_not(&self, ask: &Ask<'_>) -> Unplaced {
        let mut tally = Tally::default();
        let nodes = self.count();
        let required = Requirement::count(ask.spec);
        match ask.alone().map(|bound| self.find(bound)) {
            None => {
                let marks = Marks::new(self, ask, None);
                for row in self.row_numbers() {
                    tally.add(
                        self.obstacle(ask, required, row, (marks.of(row), marks.broken(row))),
                        1,
                    );
                }
            }
            Some(None) => tally.add(Some(Obstacle::Closed(Closed::NotItsNode)), nodes),
            Some(Some(row)) => {
                tally.add(Some(Obstacle::Closed(Closed::NotItsNode)), nodes - 1);
                tally.add(
                    self.obstacle(ask, required, row, (&Mark::of_one(self, row, ask), None)),
                    1,
                );
            }
        }
        let bound = ask.bound_to.map(|node| match ask.spec.rtype {
            RType::System => Bound::System(node),
            RType::Service | RType::Job | RType::Cron if ask.spec.has_named_storage() => Bound::Volume(node),
            RType::Service | RType::Job | RType::Cron => Bound::Move(node),
        });
        Unplaced {
            nodes,
            fitting: tally.fitting,
            hindrances: tally.into_hindrances(ask),
            bound,
        }
    }

    /// Every node on which a system service's replica fits, by ascending id. The service's own replicas do
    /// not count: where it already runs, its room is its own.
    pub fn fitting(&self, ask: &Ask<'_>) -> Vec<NodeId> {
        let marks = Marks::new(self, ask, None);
        let required = Requirement::count(ask.spec);
        let fits = |row: &u32| {
            let (node, mark) = (self.node(*row), marks.of(*row));
            let tenancy = Tenancy::of(node, mark.own).without(ask.service);
            let has_room = mark.own > 0 || node.free().covers(ask.demand);
            has_room && closed(ask, required, node, (mark, marks.broken(*row)), tenancy).is_none()
        };
        let rows = self.row_numbers().filter(fits);
        let mut fitting: Vec<NodeId> = rows.map(|row| self.node(row).id).collect();
        fitting.sort_unstable();
        fitting
    }

    /// What keeps the ask off a row; none where it fits.
    fn obstacle(
        &self,
        ask: &Ask<'_>,
        required: u32,
        row: u32,
        (mark, broken): (&Mark, Option<Broken>),
    ) -> Option<Obstacle> {
        let node = self.node(row);
        match closed(ask, required, node, (mark, broken), Tenancy::of(node, mark.own)) {
            Some(Closed::Unsuitable) => Some(Obstacle::Unmet(mark.met)),
            Some(other) => Some(Obstacle::Closed(other)),
            None => lacks_room(ask, node),
        }
    }
}

/// What keeps an ask off one node, without any text: there may be ten thousand of them.
#[derive(Clone, Copy, Debug)]
enum Obstacle {
    Closed(Closed),
    /// The requirement at this place of the list.
    Unmet(u32),
    Cpu {
        free_milli: u64,
    },
    Memory {
        free_bytes: u64,
    },
}

fn lacks_room(ask: &Ask<'_>, node: &NodeRow) -> Option<Obstacle> {
    let free = node.free();
    if free.cpu_milli < ask.demand.cpu_milli {
        return Some(Obstacle::Cpu {
            free_milli: free.cpu_milli,
        });
    }
    (free.memory_bytes < ask.demand.memory_bytes).then_some(Obstacle::Memory {
        free_bytes: free.memory_bytes,
    })
}

/// Nodes with the same obstacle, and the most that is free on one of them where room is the obstacle.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    nodes: u32,
    free: u64,
}

/// Counts nodes by what keeps the ask off them.
#[derive(Default)]
struct Tally {
    fitting: u32,
    closed: BTreeMap<Closed, Group>,
    unmet: BTreeMap<u32, Group>,
    cpu: Group,
    memory: Group,
}

impl Tally {
    fn add(&mut self, obstacle: Option<Obstacle>, nodes: u32) {
        let (group, free) = match obstacle {
            None => {
                self.fitting += nodes;
                return;
            }
            Some(Obstacle::Closed(closed)) => (self.closed.entry(closed).or_default(), 0),
            Some(Obstacle::Unmet(at)) => (self.unmet.entry(at).or_default(), 0),
            Some(Obstacle::Cpu { free_milli }) => (&mut self.cpu, free_milli),
            Some(Obstacle::Memory { free_bytes }) => (&mut self.memory, free_bytes),
        };
        group.nodes += nodes;
        group.free = group.free.max(free);
    }

    /// In the order in which the reasons are tried, which is that of `Reason`.
    fn into_hindrances(self, ask: &Ask<'_>) -> Vec<Hindrance> {
        // The operating system and the architecture are two requirements and one reason.
        let mut nodes: BTreeMap<Reason, u32> = BTreeMap::new();
        let mut count = |reason: Reason, group: Group| *nodes.entry(reason).or_default() += group.nodes;
        for (requirement, at) in Requirement::all(ask.spec).zip(0..) {
            count(
                requirement.reason(ask.spec),
                self.unmet.get(&at).copied().unwrap_or_default(),
            );
        }
        for (closed, group) in self.closed {
            if let Some(reason) = closed_reason(ask, closed) {
                count(reason, group);
            }
        }
        let cpu = Reason::Cpu {
            free_milli: self.cpu.free,
            asked_milli: ask.demand.cpu_milli,
        };
        let memory = Reason::Memory {
            free_bytes: self.memory.free,
            asked_bytes: ask.demand.memory_bytes,
        };
        count(cpu, self.cpu);
        count(memory, self.memory);
        let found = nodes.into_iter().filter(|(_, nodes)| *nodes > 0);
        found.map(|(reason, nodes)| Hindrance { nodes, reason }).collect()
    }
}

/// The reason to tell; none for a requirement, whose place in the list tells more.
fn closed_reason(ask: &Ask<'_>, closed: Closed) -> Option<Reason> {
    match closed {
        Closed::NotItsNode => Some(Reason::NotItsNode),
        Closed::RunsNone => Some(Reason::RunsNone),
        Closed::Unsuitable => None,
        Closed::MountsNoFiles => Some(Reason::MountsNoFiles),
        Closed::RunsNoSteps => Some(Reason::RunsNoSteps),
        Closed::MakesNoVolumes => Some(Reason::MakesNoVolumes),
        Closed::SizesNoVolumes => Some(Reason::SizesNoVolumes),
        Closed::Unreachable => Some(Reason::Unreachable),
        Closed::Draining => Some(Reason::Draining),
        Closed::Drained => Some(Reason::Drained),
        Closed::Avoided => Some(Reason::Avoided),
        Closed::HeldExclusively => Some(Reason::HeldExclusively),
        Closed::DedicatedToAnother => Some(Reason::DedicatedToAnother),
        Closed::RunsOthers => Some(Reason::RunsOthers),
        Closed::RunsAny => Some(Reason::RunsAny),
        Closed::Breaks(broken) => rule_reason(ask, broken),
    }
}

fn rule_reason(ask: &Ask<'_>, broken: Broken) -> Option<Reason> {
    let limit = |place: u32| ask.rules.max_per?.iter().nth(place as usize);
    match broken {
        Broken::MaxPerNode => ask.rules.max_per_node.map(|max| Reason::MaxPerNode { max }),
        Broken::LacksLabelOf(place) => {
            limit(place).map(|(key, _)| Reason::LacksLabelOfLimit { key: key.clone() })
        }
        Broken::MaxPer(place) => limit(place).map(|(key, max)| Reason::MaxPer {
            key: key.clone(),
            max: *max,
        }),
        Broken::Company(place) => ask
            .rules
            .company
            .get(place as usize)
            .map(|company| Reason::Company {
                service: company.service.clone(),
                by: company.by.clone(),
                wish: company.wish,
            }),
    }
}
