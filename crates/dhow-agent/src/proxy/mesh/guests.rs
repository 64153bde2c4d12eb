//! Those who have connected and not proved yet which node they are. However many strangers come, and from wherever,
//! nodes get in: where a place is wanted, the oldest guest of the address that has most goes. Pure but for the tokens.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Handshakes at a time. One takes a millisecond, so that a thousand nodes that come at once find a place in time.
const GUESTS_MAX: usize = 256;

/// The guests of the port of the mesh; clones are the same.
#[derive(Clone, Default)]
pub struct Guests(Arc<Mutex<Rooms>>);

#[derive(Default)]
struct Rooms {
    by_address: BTreeMap<IpAddr, VecDeque<(u64, CancellationToken)>>,
    count: usize,
    next: u64,
}

/// A guest's place, until it is dropped.
pub struct Guest {
    guests: Guests,
    address: IpAddr,
    number: u64,
    /// Cancelled where another one needs the place more.
    pub gone: CancellationToken,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests.lock().remove(self.address, self.number);
    }
}

impl Guests {
    /// Takes a newcomer in, in the place of another where there is none.
    pub fn enter(&self, address: IpAddr) -> Guest {
        let address = account(address);
        let gone = CancellationToken::new();
        let mut rooms = self.lock();
        if rooms.count >= GUESTS_MAX {
            rooms.make_room();
        }
        rooms.next += 1;
        rooms.count += 1;
        let number = rooms.next;
        let room = rooms.by_address.entry(address).or_default();
        room.push_back((number, gone.clone()));
        drop(rooms);
        Guest {
            guests: self.clone(),
            address,
            number,
            gone,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rooms> {
        // Nothing that runs under the lock leaves the rooms half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rooms {
    fn make_room(&mut self) {
        let fullest = self.by_address.iter_mut().max_by_key(|(_, room)| room.len());
        let oldest = fullest.and_then(|(address, room)| Some((*address, room.front()?.clone())));
        if let Some((address, (number, gone))) = oldest {
            self.remove(address, number);
            gone.cancel();
        }
    }

    fn remove(&mut self, address: IpAddr, number: u64) {
        let Some(room) = self.by_address.get_mut(&address) else {
            return;
        };
        let before = room.len();
        room.retain(|(found, _)| *found != number);
        self.count -= before - room.len();
        if room.is_empty() {
            self.by_address.remove(&address);
        }
    }
}

/// A host has a whole /64 of IPv6 addresses to itself, and an IPv4 address may come in the clothes of IPv6.
pub fn account(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_of_one_address_makes_room_for_others() {
        let guests = Guests::default();
        let crowd: Vec<_> = (0..GUESTS_MAX)
            .map(|_| guests.enter([10, 0, 0, 1].into()))
            .collect();
        let node = guests.enter([10, 0, 0, 2].into());
        assert!(crowd[0].gone.is_cancelled());
        assert!(!crowd[1].gone.is_cancelled() && !node.gone.is_cancelled());
        // The crowd goes on, and takes places of its own.
        let more: Vec<_> = (0..GUESTS_MAX)
            .map(|_| guests.enter([10, 0, 0, 1].into()))
            .collect();
        assert!(!node.gone.is_cancelled() && crowd.iter().all(|guest| guest.gone.is_cancelled()));
        assert_eq!(guests.lock().count, GUESTS_MAX);
        drop((crowd, more, node));
        let rooms = guests.lock();
        assert!(rooms.count == 0 && rooms.by_address.is_empty());
    }

    #[test]
    fn an_address_of_ipv6_is_counted_by_its_network() {
        let (one, other) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        assert_eq!(account(one), account(other));
        assert_eq!(
            account("::ffff:10.0.0.1".parse().unwrap()),
            IpAddr::from([10, 0, 0, 1])
        );
    }
}
