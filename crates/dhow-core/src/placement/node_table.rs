//! The dense table of nodes, kept up row by row.

use super::ask::Ask;
use super::marks::Marks;
use super::node_row::{NodeRow, Occupant};
use super::tag_index::TagIndex;
use crate::amount::Amount;
use crate::ids::NodeId;
use crate::spec::NodeMode;

/// What a reservation changes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    used: Amount,
    replicas: u32,
    occupant: Occupant,
}

#[derive(Clone, Debug)]
struct Row {
    /// The node as the planner gave it, plus what `place` has reserved on it since.
    node: NodeRow,
    told: Taken,
}

/// All nodes, with what is used on them: as the planner gave the rows, plus what `place` has reserved since.
#[derive(Clone, Debug, Default)]
pub struct NodeTable {
    /// In no particular order: the last row fills the gap of one that goes.
    rows: Vec<Row>,
    /// Row numbers by ascending node id. A sorted vector rather than a map: walking along it beside a sorted
    /// list of nodes costs a step each, and nodes mostly come with ascending ids.
    order: Vec<(NodeId, u32)>,
    tags: TagIndex,
    /// Scratch space of `place`.
    pub(super) marks: Marks,
}

impl NodeTable {
    pub fn new() -> Self {
        Self::default()
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A node as it stands, reservations included.
    pub fn get(&self, id: NodeId) -> Option<&NodeRow> {
        self.find(id).map(|row| self.node(row))
    }

    /// All nodes by ascending id, reservations included.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRow> {
        self.order.iter().map(|(_, row)| self.node(*row))
    }

    /// Adds a node or replaces what is known of it; reservations made on it before are forgotten.
    pub fn upsert(&mut self, node: NodeRow) {
        let told = Taken {
            used: node.used,
            replicas: node.replicas,
            occupant: node.occupant,
        };
        match self.order.binary_search_by_key(&node.id, |(id, _)| *id) {
            Ok(at) => {
                let row = self.order[at].1;
                let old = &mut self.rows[row as usize];
                if !old.node.has_tags_of(&node) {
                    self.tags.remove(row, &old.node);
                    self.tags.add(row, &node);
                }
                *old = Row { node, told };
            }
            Err(at) => {
                // Row numbers are 32 bits wide; a cluster has some ten thousand nodes.
                let Ok(row) = u32::try_from(self.rows.len()) else {
                    return;
                };
                self.order.insert(at, (node.id, row));
                self.tags.add(row, &node);
                self.rows.push(Row { node, told });
            }
        }
    }

    /// Forgets a node; whether it was there.
    pub fn remove(&mut self, id: NodeId) -> bool {
        let Ok(at) = self.order.binary_search_by_key(&id, |(id, _)| *id) else {
            return false;
        };
        let (_, row) = self.order.remove(at);
        let gone = self.rows.swap_remove(row as usize);
        self.tags.remove(row, &gone.node);
        if let Some(moved) = self.rows.get(row as usize) {
            self.tags.remove(self.count(), &moved.node);
            self.tags.add(row, &moved.node);
            if let Ok(at) = self.order.binary_search_by_key(&moved.node.id, |(id, _)| *id) {
                self.order[at].1 = row;
            }
        }
        true
    }

    /// Takes back every reservation: each node is again as it was last told.
    pub fn rollback(&mut self) {
        for Row { node, told } in &mut self.rows {
            node.used = told.used;
            node.replicas = told.replicas;
            node.occupant = told.occupant;
        }
    }

    /// Reserves what one replica takes. The caller has found that it fits.
    pub(super) fn reserve(&mut self, row: u32, ask: &Ask<'_>) {
        let node = &mut self.rows[row as usize].node;
        node.used = node.used.plus(ask.demand);
        node.replicas = node.replicas.saturating_add(1);
        match ask.spec.node_mode {
            NodeMode::Shared => {}
            NodeMode::Dedicated => node.occupant = Occupant::Dedicated(ask.service),
            NodeMode::Exclusive => node.occupant = Occupant::Exclusive(ask.service),
        }
    }

    /// A replica of a service that shares its nodes is there as well, as if it had been placed.
    pub fn take(&mut self, id: NodeId, demand: Amount) {
        if let Some(row) = self.find(id) {
            let node = &mut self.rows[row as usize].node;
            node.used = node.used.plus(demand);
            node.replicas = node.replicas.saturating_add(1);
        }
    }

    /// A replica of a service that shares its nodes is there no more.
    pub fn give_back(&mut self, id: NodeId, demand: Amount) {
        if let Some(row) = self.find(id) {
            let node = &mut self.rows[row as usize].node;
            node.used = node.used.minus(demand);
            node.replicas = node.replicas.saturating_sub(1);
        }
    }

    pub(super) fn node(&self, row: u32) -> &NodeRow {
        &self.rows[row as usize].node
    }

    /// Every row number, in no particular order.
    pub(super) fn row_numbers(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.count()
    }

    /// How many rows there are; `upsert` keeps that within 32 bits.
    pub(super) fn count(&self) -> u32 {
        self.rows.len() as u32
    }

    pub(super) fn tags(&self) -> &TagIndex {
        &self.tags
    }

    pub(super) fn find(&self, id: NodeId) -> Option<u32> {
        let at = self.order.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.order[at].1)
    }

    pub(super) fn finder(&self) -> Finder<'_> {
        Finder {
            order: &self.order,
            next: 0,
        }
    }
}

/// Finds rows one after the other, without a search where the ids come in the table's own order.
pub(super) struct Finder<'a> {
    order: &'a [(NodeId, u32)],
    next: usize,
}

impl Finder<'_> {
    pub(super) fn find(&mut self, id: NodeId) -> Option<u32> {
        let at = match self.order.get(self.next) {
            Some((next, _)) if *next == id => self.next,
            Some(_) | None => self.order.binary_search_by_key(&id, |(id, _)| *id).ok()?,
        };
        self.next = at + 1;
        Some(self.order[at].1)
    }
}
