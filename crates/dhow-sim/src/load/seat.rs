//! What the script and one worker know of each other.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tokio::sync::watch;

use super::order::Order;

/// What the script and one worker share: the script's order for it, and what the worker says of itself.
#[derive(Debug)]
pub struct Seat {
    /// From 0; its address on loopback follows from it.
    pub place: usize,
    order: watch::Sender<Order>,
    /// The id that it was given; 0 before that.
    pub node: AtomicU64,
    /// Whether it has a session.
    pub is_open: AtomicBool,
    /// Replicas that run here and whose start was acknowledged as durable.
    pub running: AtomicU32,
    /// How often a replica was started here.
    pub started: AtomicU32,
    /// How often it was told to stop one.
    pub stopped: AtomicU32,
}

impl Seat {
    pub fn new(place: usize) -> Self {
        Self {
            place,
            order: watch::Sender::new(Order::Live),
            node: AtomicU64::new(0),
            is_open: AtomicBool::new(false),
            running: AtomicU32::new(0),
            started: AtomicU32::new(0),
            stopped: AtomicU32::new(0),
        }
    }

    pub fn give(&self, order: Order) {
        self.order.send_replace(order);
    }

    pub fn orders(&self) -> watch::Receiver<Order> {
        self.order.subscribe()
    }

    pub fn order(&self) -> Order {
        *self.order.borrow()
    }

    pub fn is_joined(&self) -> bool {
        self.node.load(Ordering::Relaxed) != 0
    }
}
