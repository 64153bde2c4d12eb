//! A heap of zones with a heap of nodes in each: the best node over all zones, again and again, while only
//! the chosen node's rank and its zone's count change.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::marks::ZONE_UNLABELLED;
use super::rank::Rank;

/// A feasible node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    pub(super) rank: Rank,
    pub(super) row: u32,
}

/// A feasible node with its rank among the nodes of all zones: the least of these is the best one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankedSeat {
    zone_count: u64,
    unlabelled: bool,
    pub(super) seat: Seat,
    zone: u32,
}

impl RankedSeat {
    pub(super) fn new(zone: u32, zone_count: u64, seat: Seat) -> Self {
        Self {
            zone_count,
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
}

impl ZoneHeap {
    /// From the seats of each zone and its count.
    pub(super) fn new(zones: impl IntoIterator<Item = (Vec<Seat>, u64)>) -> Self {
        let heap = |(seats, count): (Vec<Seat>, u64)| Zone {
            count,
            seats: seats.into_iter().map(Reverse).collect(),
        };
        let zones: Vec<Zone> = zones.into_iter().map(heap).collect();
        let fronts = zones.iter().zip(0..).filter_map(|(zone, number)| {
            let Reverse(best) = *zone.seats.peek()?;
            Some(Reverse(RankedSeat::new(number, zone.count, best)))
        });
        Self {
            fronts: fronts.collect(),
            zones,
        }
    }

    /// The row of the best node. `take` gets the row and gives its rank once it has one replica more, or none when it
    /// takes no more.
    pub(super) fn next(&mut self, take: impl FnOnce(u32) -> Option<Rank>) -> Option<u32> {
        let mut front = self.fronts.peek_mut()?;
        let RankedSeat {
            seat: Seat { row, .. },
            zone: number,
            ..
        } = front.0;
        let zone = &mut self.zones[number as usize];
        zone.count = zone.count.saturating_add(1);
        let seat = zone.seats.peek_mut()?;
        match take(row) {
            Some(rank) => {
                let mut seat = seat;
                seat.0.rank = rank;
            }
            None => {
                PeekMut::pop(seat);
            }
        }
        match zone.seats.peek() {
            Some(Reverse(best)) => front.0 = RankedSeat::new(number, zone.count, *best),
            None => {
                PeekMut::pop(front);
            }
        }
        Some(row)
    }
}
