//! The placement engine: which node is best for a replica, why none is, and who would have to make room.
//!
//! `plan_next` keeps one [`NodeTable`] in its cache, feeds it with rows that changed and asks it for places.
//! The engine knows ids, amounts and the placement part of a spec, never the state: it decides from the rows
//! alone, the same rows give the same choices in whatever order they came, and every feasible node is
//! considered each time. It must never choose a node by chance, by the order of arrival or with a float.
//!
//! Where the speed comes from: identical replicas of one service change only the score of the node that was
//! chosen and the count of its zone, so a heap of zones with a heap of nodes in each ([`zone_heap`]) gives
//! exactly what scoring all nodes again would. Labels are looked up per ask in an inverted index
//! ([`tag_index`]), not per node.

mod ask;
mod closed;
mod displace;
mod look;
mod marks;
mod node_row;
mod node_table;
mod pack;
mod place;
mod rank;
mod requirement;
mod rules;
mod share;
mod tag_index;
#[cfg(test)]
mod tests;
mod unplaced;
mod why_not;
mod zone_heap;
mod zone_weights;

pub use ask::Ask;
pub use displace::{Candidate, DISPLACE_PRIORITY_GAP, Displacement};
pub use look::{Fullness, Look};
pub use node_row::{NodeRow, Occupant, Openness};
pub use node_table::NodeTable;
pub use place::PLACE_MAX;
pub use rules::{Company, Rules, Wish};
pub use unplaced::{Bound, Hindrance, Reason, Unplaced};
