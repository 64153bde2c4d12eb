//! Where callers of a port wait who have not proved yet who they are, apart from those who have: however many strangers
//! come, and from wherever, members get in.
//!
//! Used by every port that others can reach (the API, the servers' channel, the workers' port) and by the Unix socket. A
//! caller that comes is a guest of its address, an IPv6 address by its /64, or of its user. Of one address so many are served at a time, and more wait for their
//! turn; where a place is wanted, the guest that has had its own for longest goes, so that half-open connections hold
//! nothing for long and newcomers always get in. Who proves itself leaves the account, and has a seat by its name from
//! then on. The lobby decides nothing but who goes; a connection's own task closes it.

mod rooms;
mod seats;
mod turnstile;
mod visit;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use rooms::{Admission, Rooms};
use seats::Seats;
use turnstile::Turnstile;
pub use visit::Visit;

/// How long a guest has its place to itself, whoever else wants one: a handshake takes milliseconds, and in a rush of
/// thousands half a second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// The same where an address sends crowds of which hardly anybody proves itself: then a place is worth more than a slow
/// handshake. With three quarters of 2,500 places, 6,000 newcomers a second of one address still find one at once.
pub(crate) const PATIENCE_WITH_CROWDS: Duration = Duration::from_millis(300);

/// How long somebody may stay a guest where nobody wants its place.
pub(crate) const STAY_MAX: Duration = Duration::from_secs(60);

/// How often one that waits for its turn looks whether somebody has stayed too long.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Guests prove themselves one after the other: then a newcomer is worth a short wait, and is not sent away.
const PROGRESS: Duration = Duration::from_millis(100);

/// The part of the process's files that guests of one port may have: an eighth, for there are three ports, and files and
/// members need the rest.
const FILES_PART: u64 = 8;

/// Files that a port leaves to everything else of the process. The workers' port leaves the other ports enough for the
/// servers and for people: a server that is full of sessions still hears its leader, and its workers go elsewhere.
pub(crate) const FILES_LEFT: usize = 500;
pub(crate) const FILES_LEFT_BY_WORKERS: usize = 2_000;

/// The callers of all ports of this process together: each one has a file.
static CALLERS: AtomicUsize = AtomicUsize::new(0);

/// The fewest guests that a port has room for, however few files there are.
const GUESTS_MIN: usize = 64;

/// How many a port takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LobbyLimits {
    /// Guests in all, those that wait for their turn among them.
    pub guests: usize,
    /// Guests of one address that are served at a time.
    pub per_address: usize,
    /// Connections of one that has proved who it is.
    pub per_known: usize,
    /// Callers of all ports together, guests or not, from which on this port takes a newcomer only in the place of a
    /// guest.
    pub callers: usize,
}

impl LobbyLimits {
    /// So many guests, or as many as this process has files for, of which `files_left` stay free; three quarters of the
    /// places for one address.
    pub fn of_host(guests: usize, per_known: usize, files_left: usize) -> Self {
        let files = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
        let files = files.map_or(1_024, |(soft, _)| soft);
        let count = |files: u64| usize::try_from(files).unwrap_or(usize::MAX);
        let guests = guests.min(count(files / FILES_PART)).max(GUESTS_MIN);
        // Of few files as many stay free as may be: half of them.
        let files_left = files_left.min(count(files / 2));
        Self {
            guests,
            per_address: guests / 4 * 3,
            per_known,
            callers: count(files) - files_left,
        }
    }
}

/// The places of one port's callers: guests by address, and those who proved themselves by name; clones are the same
/// lobby.
#[derive(Clone, Debug)]
pub(crate) struct Lobby(Arc<LobbyState>);

/// The guests, those who have proved who they are, and the turns of handshakes.
#[derive(Debug)]
struct LobbyState {
    rooms: Mutex<Rooms>,
    seats: Mutex<Seats>,
    /// A guest or a known caller has left.
    left: Notify,
    turnstile: Turnstile,
    callers_max: usize,
    callers: &'static AtomicUsize,
}

impl Lobby {
    pub fn new(limits: LobbyLimits) -> Self {
        Self::among(limits, &CALLERS)
    }

    /// One of the lobbies that count their callers together.
    fn among(limits: LobbyLimits, callers: &'static AtomicUsize) -> Self {
        Self(Arc::new(LobbyState {
            rooms: Mutex::new(Rooms::new(limits)),
            seats: Mutex::new(Seats::new(limits.per_known)),
            left: Notify::new(),
            turnstile: Turnstile::of_host(),
            callers_max: limits.callers,
            callers,
        }))
    }

    /// Takes a newcomer in; none where it has to go away, because everybody else came just now as well.
    pub async fn enter(&self, addr: SocketAddr) -> Option<Visit> {
        self.enter_as(Account::of(addr.ip())).await
    }

    /// The same for a user of this host.
    pub async fn enter_user(&self, uid: u32) -> Option<Visit> {
        self.enter_as(Account::User(uid)).await
    }

    async fn enter_as(&self, account: Account) -> Option<Visit> {
        loop {
            let left = self.0.left.notified();
            let is_full = self.0.callers.load(Ordering::Relaxed) >= self.0.callers_max;
            let asked = self.rooms().enter(account, is_full, Instant::now());
            match asked {
                Admission::In(guest) => return Some(Visit::new(self.clone(), guest)),
                Admission::Full { progresses: false } => return None,
                Admission::Full { progresses: true } => {
                    let _ = tokio::time::timeout(PROGRESS, left).await;
                }
            }
        }
    }

    /// How many have proved who they are.
    pub fn known(&self) -> usize {
        self.seats().len()
    }

    #[cfg(test)]
    pub fn guests(&self) -> usize {
        self.rooms().count()
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.0.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.0.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose guests are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Account {
    Address(IpAddr),
    User(u32),
}

impl Account {
    /// A host has a whole /64 of IPv6 addresses to itself, and an IPv4 address may come in the clothes of IPv6.
    pub fn of(ip: IpAddr) -> Self {
        Self::Address(match ip.to_canonical() {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
        })
    }
}

/// A guest as it was taken in.
#[derive(Debug)]
struct Guest {
    account: Account,
    number: u64,
    /// Resolves when it is its turn; none where it is at once.
    turn: Option<tokio::sync::oneshot::Receiver<()>>,
    /// Cancelled where it has to go.
    gone: CancellationToken,
}

#[cfg(test)]
mod tests;
