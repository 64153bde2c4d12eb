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

/// A feasible node among the nodes of all zones: the least of these is the best place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    zone_count: u64,
    unlabelled: bool,
    pub(super) seat: Seat,
    zone: u32,
}

impl Place {
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

#[derive(Debug)]
pub(super) struct ZoneHeap {
    zones: Vec<Zone>,
    /// The best place of each zone that has any.
    fronts: BinaryHeap<Reverse<Place>>,
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
            Some(Reverse(Place::new(number, zone.count, best)))
        });
        Self {
            fronts: fronts.collect(),
            zones,
        }
    }

    /// The row of the best place. `take` is told the row and gives its rank once one more is there, or none
    /// when it takes no more.
    pub(super) fn next(&mut self, take: impl FnOnce(u32) -> Option<Rank>) -> Option<u32> {
        let mut front = self.fronts.peek_mut()?;
        let Place {
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
            Some(Reverse(best)) => front.0 = Place::new(number, zone.count, *best),
            None => {
                PeekMut::pop(front);
            }
        }
        Some(row)
    }
}
