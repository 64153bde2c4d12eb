//! A heap of zones with a heap of nodes in each: the best node over all zones, again and again, while only
//! the chosen node's rank and its zone's count change.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::marks::ZONE_UNLABELLED;
use super::rank::Rank;
use super::zone_weights::ZoneWeights;

/// A feasible node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    pub(super) rank: Rank,
    pub(super) row: u32,
}

/// A feasible node with its rank among the nodes of all zones: the least of these is the best one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankedSeat {
    zone_need: u64,
    unlabelled: bool,
    pub(super) seat: Seat,
    zone: u32,
}

impl RankedSeat {
    pub(super) fn new(zone: u32, zone_need: u64, seat: Seat) -> Self {
        Self {
            zone_need,
            unlabelled: zone == ZONE_UNLABELLED,
            seat,
            zone,
        }
    }
}

#[derive(Debug)]
struct Zone {
    count: u64,
    seats: BinaryHeap<Reverse<Seat>>,
}

/// The feasible nodes of one ask, with the best one on top.
#[derive(Debug)]
pub(super) struct ZoneHeap {
    zones: Vec<Zone>,
    /// The best place of each zone that has any.
    fronts: BinaryHeap<Reverse<RankedSeat>>,
    weights: ZoneWeights,
}

/// What became of the best node.
pub(super) enum Turn {
    /// It has one replica more, and this rank where it takes another.
    Taken(Option<Rank>),
    /// It takes none any more.
    Passed,
}

impl ZoneHeap {
    /// From the seats of each zone and its count.
    pub(super) fn new(zones: impl IntoIterator<Item = (Vec<Seat>, u64)>, weights: ZoneWeights) -> Self {
        let heap = |(seats, count): (Vec<Seat>, u64)| Zone {
            count,
            seats: seats.into_iter().map(Reverse).collect(),
        };
        let zones: Vec<Zone> = zones.into_iter().map(heap).collect();
        let fronts = zones.iter().zip(0..).filter_map(|(zone, number)| {
            let Reverse(best) = *zone.seats.peek()?;
            let need = weights.need(number, zone.count);
            Some(Reverse(RankedSeat::new(number, need, best)))
        });
        Self {
            fronts: fronts.collect(),
            zones,
            weights,
        }
    }

    /// The row of the best node that was taken. `take` gets the row of the best one and says what became of it.
    pub(super) fn next(&mut self, mut take: impl FnMut(u32) -> Turn) -> Option<u32> {
        loop {
            let mut front = self.fronts.peek_mut()?;
            let RankedSeat {
                seat: Seat { row, .. },
                zone: number,
                ..
            } = front.0;
            let zone = &mut self.zones[number as usize];
            let seat = zone.seats.peek_mut()?;
            let turn = take(row);
            match turn {
                Turn::Taken(Some(rank)) => {
                    let mut seat = seat;
                    seat.0.rank = rank;
                }
                Turn::Taken(None) | Turn::Passed => {
                    PeekMut::pop(seat);
                }
            }
            let taken = matches!(turn, Turn::Taken(_));
            zone.count = zone.count.saturating_add(u64::from(taken));
            match zone.seats.peek() {
                Some(Reverse(best)) => {
                    front.0 = RankedSeat::new(number, self.weights.need(number, zone.count), *best);
                }
                None => {
                    PeekMut::pop(front);
                }
            }
            if taken {
                return Some(row);
            }
        }
    }
}
