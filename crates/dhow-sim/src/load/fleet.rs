//! All workers together, as the script sees them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::order::Order;
use super::seat::Seat;
use super::tally::Tally;
use super::worker::{Invitation, Surroundings, Worker};

/// How often the script looks: what it measures is that much too long at most.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The workers of a load run: the script gives them orders and counts them. They end with it.
pub struct Fleet {
    around: Arc<Surroundings>,
    pub seats: Vec<Arc<Seat>>,
    /// Ended with it.
    _workers: JoinSet<()>,
}

impl Fleet {
    /// They begin to join at once, so many at a time.
    pub fn start(
        servers: Vec<std::net::SocketAddr>,
        invitation: Invitation,
        count: usize,
        at_once: usize,
    ) -> Self {
        let around = Arc::new(Surroundings {
            servers,
            invitation,
            doorway: Semaphore::new(at_once),
            tally: Tally::default(),
        });
        let seats: Vec<Arc<Seat>> = (0..count).map(|place| Arc::new(Seat::new(place))).collect();
        let mut workers = JoinSet::new();
        for seat in &seats {
            workers.spawn(Worker::new(Arc::clone(&around), Arc::clone(seat)).run());
        }
        Self {
            around,
            seats,
            _workers: workers,
        }
    }

    pub fn tally(&self) -> &Tally {
        &self.around.tally
    }

    /// Whether none has been turned away for good.
    pub fn is_whole(&self) -> bool {
        self.tally().turned_away.load(Ordering::Relaxed) == 0
    }

    pub fn joined(&self) -> usize {
        self.seats.iter().filter(|seat| seat.is_joined()).count()
    }

    pub fn open(&self) -> usize {
        let open = |seat: &&Arc<Seat>| seat.is_open.load(Ordering::Relaxed);
        self.seats.iter().filter(open).count()
    }

    /// Replicas that run on workers that are there.
    pub fn running(&self) -> u64 {
        let counted = self.seats.iter().filter(|seat| seat.order().counts());
        counted
            .map(|seat| u64::from(seat.running.load(Ordering::Relaxed)))
            .sum()
    }

    /// How often replicas were started, and stopped, so far.
    pub fn moves(&self) -> (u64, u64) {
        let sum = |of: fn(&Seat) -> u32| self.seats.iter().map(|seat| u64::from(of(seat))).sum();
        (
            sum(|seat| seat.started.load(Ordering::Relaxed)),
            sum(|seat| seat.stopped.load(Ordering::Relaxed)),
        )
    }

    pub fn give(&self, places: std::ops::Range<usize>, order: Order) {
        self.seats[places].iter().for_each(|seat| seat.give(order));
    }

    /// Waits until the condition holds and gives how long that took; none where it does not hold after `patience`.
    pub async fn until(&self, patience: Duration, is_so: impl Fn(&Self) -> bool) -> Option<Duration> {
        let began = Instant::now();
        loop {
            if is_so(self) {
                return Some(began.elapsed());
            }
            if began.elapsed() > patience {
                return None;
            }
            sleep(LOOK_EVERY).await;
        }
    }
}
