//! What the script and one worker know of each other.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::order::Order;
use super::worker::View;

/// What stands for no server.
const NOWHERE: usize = usize::MAX;

/// One worker's place in its process: the order that it is given and what it has to show for it.
#[derive(Debug)]
pub struct Seat {
    /// Among all workers, from 0; its address on loopback follows from it.
    pub place: usize,
    order: watch::Sender<Order>,
    /// The id that it was given; 0 before that.
    pub node: AtomicU64,
    /// The server that its open session is with.
    server: AtomicUsize,
    /// Replicas that run here and whose start was acknowledged as durable.
    pub running: AtomicU32,
    /// How often a replica was started here.
    pub started: AtomicU32,
    /// How often it was told to stop one.
    pub stopped: AtomicU32,
    /// A hash of the name of each replica that is here.
    held: Mutex<Vec<u64>>,
    /// What it knows of services.
    view: Mutex<View>,
}

impl Seat {
    pub fn new(place: usize) -> Self {
        Self {
            place,
            order: watch::Sender::new(Order::Live),
            node: AtomicU64::new(0),
            server: AtomicUsize::new(NOWHERE),
            running: AtomicU32::new(0),
            started: AtomicU32::new(0),
            stopped: AtomicU32::new(0),
            held: Mutex::default(),
            view: Mutex::default(),
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

    /// The server that has its session.
    pub fn server(&self) -> Option<usize> {
        Some(self.server.load(Ordering::Relaxed)).filter(|server| *server != NOWHERE)
    }

    pub fn set_server(&self, server: Option<usize>) {
        self.server.store(server.unwrap_or(NOWHERE), Ordering::Relaxed);
    }

    pub fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn hold(&self, replicas: Vec<u64>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = replicas;
    }

    pub fn held(&self) -> Vec<u64> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
