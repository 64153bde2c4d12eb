//! The guests: who is served, who waits, and who goes where there is no room.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Account, Guest, LobbyLimits, PATIENCE, PATIENCE_WITH_CROWDS, PROGRESS};

/// What the lobby does with a newcomer.
#[derive(Debug)]
pub(super) enum Admission {
    In(Guest),
    Full {
        /// Others have just proved who they are: it is worth a short wait.
        progresses: bool,
    },
}

/// All guests of a lobby, by address or user.
#[derive(Debug)]
pub(super) struct Rooms {
    limits: LobbyLimits,
    guests: BTreeMap<Account, Room>,
    count: usize,
    next: u64,
    proved: Option<Instant>,
}

/// How an address's guests ended lately; what is older counts half as much each second.
#[derive(Debug)]
struct Lately {
    until: Instant,
    proved: u32,
    sent_away: u32,
}

/// So many more are sent away than prove themselves where a crowd is none of workers that join.
const SENT_AWAY_TO_PROVED: u32 = 8;
/// So many say nothing yet: a handful of slow ones is no crowd.
const SENT_AWAY_MIN: u32 = 64;

const SECOND: Duration = Duration::from_secs(1);

impl Lately {
    fn new(now: Instant) -> Self {
        Self {
            until: now,
            proved: 0,
            sent_away: 0,
        }
    }

    fn age(&mut self, now: Instant) {
        while now.saturating_duration_since(self.until) >= SECOND {
            self.until += SECOND;
            self.proved /= 2;
            self.sent_away /= 2;
            if (self.proved, self.sent_away) == (0, 0) {
                self.until = now;
            }
        }
    }

    fn is_crowd(&self) -> bool {
        self.sent_away > SENT_AWAY_MIN.max(self.proved.saturating_mul(SENT_AWAY_TO_PROVED))
    }
}

/// The guests of one address.
#[derive(Debug)]
struct Room {
    /// Those that are served, by their numbers, which grow with time.
    served: BTreeMap<u64, Served>,
    waiting: VecDeque<Waiting>,
    lately: Lately,
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
    fn new(now: Instant) -> Self {
        Self {
            served: BTreeMap::new(),
            waiting: VecDeque::new(),
            lately: Lately::new(now),
        }
    }

    fn len(&self) -> usize {
        self.served.len() + self.waiting.len()
    }

    /// The one that is served for longest, where that is longer than it may be alone in wanting.
    fn stale(&self, now: Instant) -> Option<u64> {
        let (number, served) = self.served.first_key_value()?;
        let patience = match self.lately.is_crowd() {
            true => PATIENCE_WITH_CROWDS,
            false => PATIENCE,
        };
        (now.saturating_duration_since(served.since) >= patience).then_some(*number)
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

    /// Takes a newcomer in; where the process `is_full`, only in the place of another.
    pub fn enter(&mut self, account: Account, is_full: bool, now: Instant) -> Admission {
        if (is_full || self.count >= self.limits.guests) && !self.make_room(account, now) {
            // In a full process nobody's proof makes room.
            let progresses = !is_full
                && self
                    .proved
                    .is_some_and(|at| now.saturating_duration_since(at) < PROGRESS);
            return Admission::Full { progresses };
        }
        self.next += 1;
        self.count += 1;
        let (number, gone) = (self.next, CancellationToken::new());
        let limit = self.limits.per_address;
        let room = self.guests.entry(account).or_insert_with(|| Room::new(now));
        room.lately.age(now);
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
    /// newcomer takes only the place of one that has had it for long.
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
        if let Some(room) = self.guests.get_mut(&account) {
            room.lately.sent_away = room.lately.sent_away.saturating_add(1);
        }
        if let Some(gone) = self.remove(account, number, now) {
            gone.cancel();
        }
    }

    /// Those who wait take the places of those that have had their own for long.
    pub fn hurry(&mut self, account: Account, now: Instant) {
        while let Some(room) = self.guests.get(&account)
            && !room.waiting.is_empty()
            && let Some(number) = room.stale(now)
        {
            self.send_away(account, number, now);
        }
    }

    /// Whether hardly anybody of this address proves itself lately.
    pub fn is_crowd(&self, account: Account) -> bool {
        let room = self.guests.get(&account);
        room.is_some_and(|room| room.lately.is_crowd())
    }

    /// A guest has proved who it is.
    pub fn proved(&mut self, account: Account, number: u64, now: Instant) {
        self.proved = Some(now);
        if let Some(room) = self.guests.get_mut(&account) {
            room.lately.proved = room.lately.proved.saturating_add(1);
        }
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
