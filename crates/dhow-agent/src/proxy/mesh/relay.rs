//! A node that passes on for others that nobody can dial: these keep a tunnel to it, and whoever calls one of them is tied to
//! a connection that the called node dials for it.
//!
//! ```text
//!  caller ──▶ relay ◀── tunnel, idle ── node behind NAT
//!     │         ◀──── a connection for this call ────┘
//!     └────────── TLS of the two, as bytes ──────────┘
//! ```
//!
//! Used by [`Far`](super::far), which has proved who each of them is. What passes is counted and slowed down to a limit; how
//! much is open has bounds. Nothing of it is looked at: who the two are to each other they prove themselves.

mod limit;
mod slowed;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dhow_core::usage::RelayFigures;
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::connection::{Connection, Frame};
use super::connections::Registered;
use super::frame::{Kind, Why, write_number};
use super::own::Timing;
use super::silence::Silence;
use crate::proxy::relay::relay;
use crate::proxy::shared_stream::SharedStream;
use crate::proxy::table::RelayDuty;
use limit::Limit;
use slowed::Slowed;

/// Connections that are passed on for one node, and for all: each has two descriptors here, and 64 KiB each way while
/// something is on its way.
const PER_NODE_MAX: usize = 1_024;
const CALLS_MAX: usize = 8_192;
/// Of both, one calling node has at most half: whoever fills its own leaves the called nodes to others.
const CALLER_PART: usize = 2;
/// From a call to the connection that answers it: below the time in which a caller gives a node up.
const ARRIVE_TIMEOUT: Duration = Duration::from_millis(700);
/// How soon a proxy that was replaced, or killed, offers itself again.
const BACK_SOON: Duration = Duration::from_millis(700);
/// Idle tunnels are asked less often than nodes that are called: ten thousand of them are two thousand beats a second.
pub const IDLE_FACTOR: u32 = 10;

/// The passing on of one proxy.
#[derive(Default)]
pub struct Relay {
    duty: Mutex<Option<Arc<Limit>>>,
    offers: Mutex<BTreeMap<u64, Offer>>,
    /// Nodes whose tunnel has just ended: a proxy that is replaced is back in a moment.
    left: Mutex<BTreeMap<u64, Instant>>,
    offered: Notify,
    /// By the number of the call.
    awaited: Mutex<BTreeMap<u64, Awaited>>,
    room: Mutex<Option<Arc<Semaphore>>>,
    /// The rooms of nodes that have a tunnel, and of whatever is open.
    rooms: Mutex<BTreeMap<RoomOf, Weak<Semaphore>>>,
    figures: Arc<Counts>,
}

/// Whose connections have a room of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RoomOf {
    /// Those to a node that is called.
    Called(u64),
    /// Those of a node that calls.
    Caller(u64),
    Both {
        called: u64,
        caller: u64,
    },
}

impl RoomOf {
    fn max(self) -> usize {
        match self {
            Self::Called(_) => PER_NODE_MAX,
            Self::Caller(_) => CALLS_MAX / CALLER_PART,
            Self::Both { .. } => PER_NODE_MAX / CALLER_PART,
        }
    }
}

/// A node that has offered itself.
#[derive(Clone)]
struct Offer {
    calls: mpsc::Sender<u64>,
    room: Arc<Semaphore>,
    /// Which of the node's offers this is.
    number: u64,
}

/// A call that waits for the called node.
struct Awaited {
    node: u64,
    taker: oneshot::Sender<Arrived>,
}

/// The connection of a called node.
pub struct Arrived {
    socket: Arc<TcpStream>,
    _registered: Registered,
}

#[derive(Default)]
struct Counts {
    bytes: AtomicU64,
    calls: AtomicU64,
    refused: AtomicU64,
    open: AtomicU64,
    next: AtomicU64,
}

/// A called node's connection, ready to carry the TLS of a caller, with the right to exist.
pub struct Tied {
    arrived: Arrived,
    limit: Arc<Limit>,
    _room: Vec<OwnedSemaphorePermit>,
}

impl Relay {
    /// What this node may pass on from now on; without it nothing. What is passed on already goes on.
    pub fn set_duty(&self, duty: Option<RelayDuty>) {
        let mut now = lock(&self.duty);
        match (duty, now.as_ref()) {
            (None, _) => {
                *now = None;
                lock(&self.offers).clear();
            }
            (Some(duty), Some(limit)) => limit.set(duty.bytes_per_second),
            (Some(duty), None) => *now = Some(Arc::new(Limit::new(duty.bytes_per_second))),
        }
    }

    pub fn figures(&self) -> RelayFigures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RelayFigures {
            bytes: read(&self.figures.bytes),
            calls: read(&self.figures.calls),
            refused: read(&self.figures.refused),
            open: read(&self.figures.open),
            nodes: u64::try_from(lock(&self.offers).len()).unwrap_or(u64::MAX),
        }
    }

    /// Keeps the tunnel of a node until it ends, another one of the same node comes, or this node passes nothing on any more.
    pub async fn keep(&self, node: u64, mut connection: Connection, timing: Timing) {
        if lock(&self.duty).is_none() {
            return;
        }
        let (sender, mut calls) = mpsc::channel(PER_NODE_MAX);
        let number = self.figures.next.fetch_add(1, Ordering::Relaxed);
        let offer = Offer {
            calls: sender,
            room: self.room_of(RoomOf::Called(node)),
            number,
        };
        lock(&self.offers).insert(node, offer);
        self.offered.notify_waiters();
        // However it ends, the next one of the node has a place of its own.
        let _ = self.attend(&mut connection, &mut calls, timing).await;
        let mut offers = lock(&self.offers);
        if offers.get(&node).is_some_and(|offer| offer.number == number) {
            offers.remove(&node);
            let mut left = lock(&self.left);
            left.retain(|_, since| since.elapsed() < BACK_SOON);
            left.insert(node, Instant::now());
        }
    }

    /// The tunnel of a node; one that has just ended is waited for.
    async fn offer_of(&self, node: u64) -> Option<Offer> {
        let has_left = || {
            lock(&self.left)
                .get(&node)
                .is_some_and(|since| since.elapsed() < BACK_SOON)
        };
        let waiting = async {
            loop {
                let offered = self.offered.notified();
                if let Some(offer) = lock(&self.offers).get(&node) {
                    return Some(offer.clone());
                }
                if !has_left() {
                    return None;
                }
                offered.await;
            }
        };
        timeout(BACK_SOON, waiting).await.ok().flatten()
    }

    async fn attend(
        &self,
        connection: &mut Connection,
        calls: &mut mpsc::Receiver<u64>,
        timing: Timing,
    ) -> io::Result<()> {
        let timing = timing.idle();
        let mut beat = interval(timing.beat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = Silence::new(timing, Instant::now());
        loop {
            let (kind, body) = tokio::select! {
                biased;
                frame = connection.frame() => match frame? {
                    Some(Frame { kind: Kind::Beat, .. }) => {
                        silence.heard(Instant::now());
                        continue;
                    }
                    Some(_) | None => return Ok(()),
                },
                call = calls.recv() => match call {
                    Some(number) => (Kind::Call, write_number(number).to_vec()),
                    None => return Ok(()),
                },
                _ = beat.tick() => (Kind::Beat, Vec::new()),
                () = sleep_until(silence.deadline()) => match silence.is_too_long(Instant::now()) {
                    true => return Err(io::ErrorKind::TimedOut.into()),
                    false => continue,
                },
            };
            let sent = timeout(timing.beat, connection.send(kind, &body)).await;
            sent.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
                .flatten()?;
        }
    }

    /// Has a node arrive for a call of another.
    pub async fn call(&self, node: u64, caller: u64) -> Result<Tied, Why> {
        let tied = self.try_call(node, caller).await;
        let count = match &tied {
            Ok(_) => &self.figures.calls,
            Err(_) => &self.figures.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
        tied
    }

    async fn try_call(&self, node: u64, caller: u64) -> Result<Tied, Why> {
        let limit = lock(&self.duty).clone().ok_or(Why::NoRelay)?;
        let offer = self.offer_of(node).await.ok_or(Why::NoTunnel)?;
        let rooms = [
            offer.room,
            self.room(),
            self.room_of(RoomOf::Caller(caller)),
            self.room_of(RoomOf::Both { called: node, caller }),
        ];
        let taken = rooms.into_iter().map(Semaphore::try_acquire_owned);
        let room: Result<Vec<_>, _> = taken.collect();
        let room = room.map_err(|_| Why::Busy)?;
        let number: u64 = rand::random();
        let (taker, taken) = oneshot::channel();
        lock(&self.awaited).insert(number, Awaited { node, taker });
        let _forgotten = Forget { relay: self, number };
        offer.calls.try_send(number).map_err(|_| Why::NoTunnel)?;
        let arrived = timeout(ARRIVE_TIMEOUT, taken).await;
        let arrived = arrived.map_err(|_| Why::NoTunnel)?.map_err(|_| Why::NoTunnel)?;
        Ok(Tied {
            arrived,
            limit,
            _room: room,
        })
    }

    /// Takes the connection of a node that was called with this number; any other is dropped.
    pub fn arrive(&self, node: u64, number: u64, connection: Connection) {
        let mut awaited = lock(&self.awaited);
        if awaited.get(&number).is_none_or(|awaited| awaited.node != node) {
            return;
        }
        let Some(awaited) = awaited.remove(&number) else {
            return;
        };
        let (socket, registered) = connection.into_socket();
        // Who has waited may have gone.
        let _ = awaited.taker.send(Arrived {
            socket,
            _registered: registered,
        });
    }

    /// Passes bytes on between a caller and the node that has arrived for it, to their end.
    pub async fn pass(&self, caller: Connection, tied: Tied) {
        let (near, _registered) = caller.into_socket();
        let far = Arc::clone(&tied.arrived.socket);
        self.figures.open.fetch_add(1, Ordering::Relaxed);
        let _open = Closed(&self.figures);
        let mut one = Slowed::new(SharedStream(near), &tied.limit, &self.figures.bytes);
        let mut other = Slowed::new(SharedStream(far), &tied.limit, &self.figures.bytes);
        if relay(&mut one, &mut other).await.is_err() {
            // What broke on one side breaks on the other.
            for socket in [&one.stream().0, &other.stream().0] {
                let _ = rustix::net::sockopt::set_socket_linger(&**socket, Some(Duration::ZERO));
            }
        }
    }

    /// What is open counts on, however often a node offers itself anew.
    fn room_of(&self, whose: RoomOf) -> Arc<Semaphore> {
        let mut rooms = lock(&self.rooms);
        if let Some(room) = rooms.get(&whose).and_then(Weak::upgrade) {
            return room;
        }
        rooms.retain(|_, room| room.strong_count() > 0);
        let room = Arc::new(Semaphore::new(whose.max()));
        rooms.insert(whose, Arc::downgrade(&room));
        room
    }

    fn room(&self) -> Arc<Semaphore> {
        let mut room = lock(&self.room);
        Arc::clone(room.get_or_insert_with(|| Arc::new(Semaphore::new(CALLS_MAX))))
    }
}

impl Tied {
    /// The socket itself, for a call of this very node. It is good for as long as this is kept.
    pub fn socket(&self) -> Arc<TcpStream> {
        Arc::clone(&self.arrived.socket)
    }
}

/// Forgets a call that nobody waits for any more.
struct Forget<'a> {
    relay: &'a Relay,
    number: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(&self.relay.awaited).remove(&self.number);
    }
}

/// Counts a connection as closed.
struct Closed<'a>(&'a Counts);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks leaves what they hold half changed.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many connections come in at one node, the called one is there for the rest.
    #[tokio::test(start_paused = true)]
    async fn one_that_calls_leaves_half_to_others() {
        let relay = Relay::default();
        relay.set_duty(Some(RelayDuty { bytes_per_second: 1 }));
        let (calls, _asked) = mpsc::channel(PER_NODE_MAX);
        let room = relay.room_of(RoomOf::Called(7));
        let offer = Offer {
            calls,
            room: Arc::clone(&room),
            number: 0,
        };
        lock(&relay.offers).insert(7, offer);
        let own = relay.room_of(RoomOf::Both { called: 7, caller: 1 });
        let open: Vec<_> = std::iter::from_fn(|| own.clone().try_acquire_owned().ok()).collect();
        assert_eq!(open.len(), PER_NODE_MAX / 2);
        assert_eq!(relay.try_call(7, 1).await.err(), Some(Why::Busy));
        // This one is asked for, and does not arrive.
        assert_eq!(relay.try_call(7, 2).await.err(), Some(Why::NoTunnel));
        assert_eq!(room.available_permits(), PER_NODE_MAX);
    }

    #[test]
    fn what_a_node_has_open_counts_when_it_offers_itself_anew() {
        let relay = Relay::default();
        let room = |node| relay.room_of(RoomOf::Called(node));
        let open = room(7).try_acquire_owned().unwrap();
        // Its tunnel has ended and another one comes.
        assert_eq!(room(7).available_permits(), PER_NODE_MAX - 1);
        assert_eq!(room(8).available_permits(), PER_NODE_MAX);
        drop(open);
        // Nothing is kept of nodes that have gone.
        drop(room(9));
        assert_eq!(lock(&relay.rooms).len(), 1);
    }
}
