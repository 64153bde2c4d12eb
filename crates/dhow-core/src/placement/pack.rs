//! Packing: as few nodes as possible for the whole batch.

use std::cmp::Reverse;

use super::ask::Ask;
use super::marks::Marks;
use super::node_table::NodeTable;
use super::requirement::Requirement;
use super::share::Share;
use crate::ids::NodeId;

/// A feasible node. Its own fields are the order: most of this service's, most preferred labels, most room,
/// fullest, lowest id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bin {
    own: Reverse<u32>,
    liked: Reverse<u32>,
    room: Reverse<u32>,
    share: Reverse<Share>,
    id: NodeId,
    row: u32,
}

impl Bin {
    /// Nodes of one class differ only in how well the batch fits into them.
    fn class(&self) -> (Reverse<u32>, Reverse<u32>) {
        (self.own, self.liked)
    }
}

impl NodeTable {
    /// A node that has got one replica of the batch runs the most of its class from then on, so it is filled
    /// before the next is looked at; that makes one sorted pass out of the choices one by one.
    pub(super) fn pack(&mut self, ask: &Ask<'_>, marks: &Marks, wanted: u32) -> Vec<NodeId> {
        let bins = self.bins(ask, marks);
        let mut chosen = Vec::new();
        let mut rest = wanted;
        let mut first = 0;
        while rest > 0 && first < bins.len() {
            let bin = best_of_class(&bins[first..], rest);
            let here = bin.room.0.min(rest);
            for _ in 0..here {
                self.reserve(bin.row, ask);
                chosen.push(bin.id);
            }
            rest -= here;
            first += 1;
        }
        chosen
    }

    fn bins(&self, ask: &Ask<'_>, marks: &Marks) -> Vec<Bin> {
        let required = Requirement::count(ask.spec);
        let feasible = self
            .row_numbers()
            .filter(|row| self.fits(ask, required, *row, (marks.of(*row), marks.broken(*row))));
        let bin = |row: u32| {
            let (node, mark) = (self.node(row), marks.of(row));
            Bin {
                own: Reverse(mark.own),
                liked: Reverse(mark.liked),
                room: Reverse(ask.room_on(node).min(marks.room_on(row))),
                share: Reverse(Share::dominant(node.used.plus(ask.demand), node.capacity)),
                id: node.id,
                row,
            }
        };
        let mut bins: Vec<Bin> = feasible.map(bin).collect();
        bins.sort_unstable();
        bins
    }
}

/// The bin of the first one's class to fill next: the least room that holds all the rest, else the most room.
/// `bins` is sorted and not empty.
fn best_of_class(bins: &[Bin], rest: u32) -> Bin {
    let first = bins[0];
    let class_end = bins.partition_point(|bin| bin.class() == first.class());
    let enough = bins[..class_end].partition_point(|bin| bin.room.0 >= rest);
    match enough.checked_sub(1) {
        None => first,
        Some(last) => {
            let least = bins[last].room.0;
            let at = bins[..enough].partition_point(|bin| bin.room.0 > least);
            bins[at]
        }
    }
}
