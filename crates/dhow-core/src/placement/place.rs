//! Choosing: each replica goes to the best of all feasible nodes, given the choices before it.

use std::mem;

use super::ask::Ask;
use super::closed::{Tenancy, closed};
use super::marks::{Mark, Marks};
use super::node_table::NodeTable;
use super::rank::Order;
use super::requirement::Requirement;
use super::rules::Broken;
use super::zone_heap::{RankedSeat, Seat, Turn, ZoneHeap};
use crate::ids::NodeId;
use crate::spec::{AffinityMode, NodeMode};

/// The most that one call of `place` chooses: 2^20 node ids are 8 MiB, and a million replicas fill the
/// largest cluster that is provided for. A caller that wants more asks again.
pub const PLACE_MAX: u32 = 1 << 20;

/// Up to so many choices, a pass over all nodes for each is quicker than building the heaps: with 10,000
/// nodes a pass takes three quarters of the time of the building.
const SCAN_MAX: u32 = 1;

/// How the best place is found. Both give the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    Scan,
    Heap,
}

impl NodeTable {
    /// Chooses nodes for `wanted` identical replicas one after the other, each time the best of all feasible
    /// nodes given the choices before, and reserves what they take (`rollback` takes that back, as does
    /// telling the row again). Gives the nodes in the order they were chosen: fewer than wanted when no node
    /// fits any more, and never more than [`PLACE_MAX`].
    pub fn place(&mut self, ask: &Ask<'_>, wanted: u32) -> Vec<NodeId> {
        let search = if wanted <= SCAN_MAX {
            Search::Scan
        } else {
            Search::Heap
        };
        self.place_by(search, ask, wanted)
    }

    pub(super) fn place_by(&mut self, search: Search, ask: &Ask<'_>, wanted: u32) -> Vec<NodeId> {
        let wanted = wanted.min(PLACE_MAX);
        if wanted == 0 || self.is_empty() {
            return Vec::new();
        }
        if let Some(bound) = ask.alone() {
            return self.place_bound(ask, bound, wanted);
        }
        let affinity = ask.spec.affinity_of(ask.role);
        let mut marks = mem::take(&mut self.marks);
        let spread_by = affinity.spread_by.as_deref();
        marks.set(self, ask, spread_by);
        let (order, whole_batch) = match affinity.mode {
            AffinityMode::Spread | AffinityMode::Pin => (Order::Spread, false),
            // Over zones, or within limits of them, the batch is divided first: no node can be fitted to all of it.
            AffinityMode::Pack => (Order::Pack, spread_by.is_none() && ask.rules.max_per.is_none()),
        };
        let chosen = match (whole_batch, search) {
            (true, Search::Scan | Search::Heap) => self.pack(ask, &marks, wanted),
            (false, Search::Scan) => self.place_by_scan(ask, order, &mut marks, wanted),
            (false, Search::Heap) => self.place_by_heap(ask, order, &mut marks, wanted),
        };
        self.marks = marks;
        chosen
    }

    /// Only one node may be used, so there is nothing to compare.
    fn place_bound(&mut self, ask: &Ask<'_>, bound: NodeId, wanted: u32) -> Vec<NodeId> {
        let Some(row) = self.find(bound) else {
            return Vec::new();
        };
        let required = Requirement::count(ask.spec);
        let mut mark = Mark::of_one(self, row, ask);
        let mut chosen = Vec::new();
        while chosen.len() < wanted as usize && self.fits(ask, required, row, (&mark, None)) {
            self.reserve(row, ask);
            mark.own = mark.own.saturating_add(1);
            chosen.push(bound);
        }
        chosen
    }

    /// Whether the row is open to the ask and has room for one more.
    pub(super) fn fits(
        &self,
        ask: &Ask<'_>,
        required: u32,
        row: u32,
        (mark, broken): (&Mark, Option<Broken>),
    ) -> bool {
        let node = self.node(row);
        node.free().covers(ask.demand)
            && closed(ask, required, node, (mark, broken), Tenancy::of(node, mark.own)).is_none()
    }

    /// Scores every feasible node for each replica.
    fn place_by_scan(&mut self, ask: &Ask<'_>, order: Order, marks: &mut Marks, wanted: u32) -> Vec<NodeId> {
        let required = Requirement::count(ask.spec);
        let mut chosen = Vec::with_capacity(wanted as usize);
        for _ in 0..wanted {
            let Some(row) = self.best_row(ask, required, order, marks) else {
                break;
            };
            self.reserve(row, ask);
            marks.count_one(row);
            chosen.push(self.node(row).id);
        }
        chosen
    }

    fn best_row(&self, ask: &Ask<'_>, required: u32, order: Order, marks: &Marks) -> Option<u32> {
        let mut best: Option<RankedSeat> = None;
        for row in self.row_numbers() {
            let mark = marks.of(row);
            if !self.fits(ask, required, row, (mark, marks.broken(row))) {
                continue;
            }
            let rank = order.rank(ask, self.node(row), (mark, marks.room_on(row)));
            let place = RankedSeat::new(mark.zone, marks.zone_need(mark.zone), Seat { rank, row });
            if best.as_ref().is_none_or(|best| place < *best) {
                best = Some(place);
            }
        }
        best.map(|best| best.seat.row)
    }

    /// Scores every feasible node once, and then only the chosen one again.
    fn place_by_heap(&mut self, ask: &Ask<'_>, order: Order, marks: &mut Marks, wanted: u32) -> Vec<NodeId> {
        let required = Requirement::count(ask.spec);
        let mut zones: Vec<(Vec<Seat>, u64)> = marks
            .zone_counts()
            .iter()
            .map(|count| (Vec::new(), *count))
            .collect();
        for row in self.row_numbers() {
            let mark = marks.of(row);
            if self.fits(ask, required, row, (mark, marks.broken(row))) {
                let rank = order.rank(ask, self.node(row), (mark, marks.room_on(row)));
                zones[mark.zone as usize].0.push(Seat { rank, row });
            }
        }
        let mut heap = ZoneHeap::new(zones, marks.weights().clone());
        let mut chosen = Vec::new();
        while chosen.len() < wanted as usize {
            let next = heap.next(|row| {
                // Its group of nodes may have filled up since it was scored.
                if marks.broken(row).is_some() {
                    return Turn::Passed;
                }
                self.reserve(row, ask);
                marks.count_one(row);
                let node = self.node(row);
                let takes_more = match ask.spec.node_mode {
                    NodeMode::Shared | NodeMode::Dedicated => node.free().covers(ask.demand),
                    NodeMode::Exclusive => false,
                };
                let takes_more = takes_more && marks.broken(row).is_none();
                let rank = || order.rank(ask, node, (marks.of(row), marks.room_on(row)));
                Turn::Taken(takes_more.then(rank))
            });
            let Some(row) = next else { break };
            chosen.push(self.node(row).id);
        }
        chosen
    }
}
