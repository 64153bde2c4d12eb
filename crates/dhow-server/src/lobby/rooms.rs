//! The guests: who is served, who waits, and who goes where there is no room.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Account, Guest, LobbyLimits, PATIENCE, PROGRESS};

/// What a newcomer is told.
#[derive(Debug)]
pub(super) enum Admission {
    In(Guest),
    Full {
        /// Others have just proved who they are: it is worth a short wait.
        progresses: bool,
    },
}

#[derive(Debug)]
pub(super) struct Rooms {
    limits: LobbyLimits,
    guests: BTreeMap<Account, Room>,
    count: usize,
    next: u64,
    proved: Option<Instant>,
}

/// The guests of one address.
#[derive(Debug, Default)]
struct Room {
    /// Those that are served, by their numbers, which grow with time.
    served: BTreeMap<u64, Served>,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Served {
    since: Instant,
    gone: CancellationToken,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    turn: oneshot::Sender<()>,
    gone: CancellationToken,
}

impl Room {
    fn len(&self) -> usize {
        self.served.len() + self.waiting.len()
    }

    /// The one that is served for longest, where that is longer than it may be alone in wanting.
    fn stale(&self, now: Instant) -> Option<u64> {
        let (number, served) = self.served.first_key_value()?;
        (now.saturating_duration_since(served.since) >= PATIENCE).then_some(*number)
    }
}

impl Rooms {
    pub fn new(limits: LobbyLimits) -> Self {
        Self {
            limits,
            guests: BTreeMap::new(),
            count: 0,
            next: 0,
            proved: None,
        }
    }

    pub fn enter(&mut self, account: Account, now: Instant) -> Admission {
        if self.count >= self.limits.guests && !self.make_room(account, now) {
            let progresses = self
                .proved
                .is_some_and(|at| now.saturating_duration_since(at) < PROGRESS);
            return Admission::Full { progresses };
        }
        self.next += 1;
        self.count += 1;
        let (number, gone) = (self.next, CancellationToken::new());
        let limit = self.limits.per_address;
        let room = self.guests.entry(account).or_default();
        let turn = match room.served.len() < limit && room.waiting.is_empty() {
            true => {
                let served = Served {
                    since: now,
                    gone: gone.clone(),
                };
                room.served.insert(number, served);
                None
            }
            false => {
                let (turn, comes) = oneshot::channel();
                room.waiting.push_back(Waiting {
                    number,
                    turn,
                    gone: gone.clone(),
                });
                Some(comes)
            }
        };
        self.hurry(account, now);
        Admission::In(Guest {
            account,
            number,
            turn,
            gone,
        })
    }

    /// Sends the guest away that has the least right to its place: one of the address that has most. Among its own a
    /// newcomer takes only the place of somebody who has had it for long.
    fn make_room(&mut self, account: Account, now: Instant) -> bool {
        let own = self.guests.get(&account).map_or(0, Room::len);
        let most = self.guests.iter().max_by_key(|(_, room)| room.len());
        let Some((most, count)) = most.map(|(account, room)| (*account, room.len())) else {
            return false;
        };
        let Some(room) = self.guests.get(&most) else {
            return false;
        };
        let victim = match count > own + 1 {
            true => {
                let newest = room.waiting.back().map(|waiting| waiting.number);
                newest.or_else(|| room.served.keys().next().copied())
            }
            false => room.stale(now),
        };
        match victim {
            Some(number) => {
                self.send_away(most, number, now);
                true
            }
            None => false,
        }
    }

    fn send_away(&mut self, account: Account, number: u64, now: Instant) {
        if let Some(gone) = self.remove(account, number, now) {
            gone.cancel();
        }
    }

    /// Somebody who waits takes the place of one that has had its own for long.
    pub fn hurry(&mut self, account: Account, now: Instant) {
        let Some(room) = self.guests.get(&account) else {
            return;
        };
        if !room.waiting.is_empty()
            && let Some(number) = room.stale(now)
        {
            self.send_away(account, number, now);
        }
    }

    /// A guest has proved who it is.
    pub fn proved(&mut self, account: Account, number: u64, now: Instant) {
        self.proved = Some(now);
        self.remove(account, number, now);
    }

    /// A guest is no more; the next one of its address has its turn.
    pub fn remove(&mut self, account: Account, number: u64, now: Instant) -> Option<CancellationToken> {
        let room = self.guests.get_mut(&account)?;
        let gone = match room.served.remove(&number) {
            Some(served) => Some(served.gone),
            None => {
                let place = room.waiting.iter().position(|waiting| waiting.number == number);
                place
                    .and_then(|place| room.waiting.remove(place))
                    .map(|waiting| waiting.gone)
            }
        };
        if gone.is_some() {
            self.count -= 1;
        }
        while room.served.len() < self.limits.per_address
            && let Some(next) = room.waiting.pop_front()
        {
            let served = Served {
                since: now,
                gone: next.gone,
            };
            room.served.insert(next.number, served);
            // One that has gone meanwhile leaves by itself.
            let _ = next.turn.send(());
        }
        if room.len() == 0 {
            self.guests.remove(&account);
        }
        gone
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.count
    }
}
