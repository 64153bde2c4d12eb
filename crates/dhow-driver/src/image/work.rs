//! Work of one pull on blocking threads, which cannot be aborted: it is asked to stop, and waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

/// Carried by everything that works for a pull.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    cancelled: Arc<AtomicBool>,
    /// Never sent on: the receiver learns when the last clone is gone.
    _alive: mpsc::Sender<()>,
}

/// The pull's own end.
#[derive(Debug)]
pub(crate) struct WorkScope {
    cancelled: Arc<AtomicBool>,
    alive: mpsc::Sender<()>,
    all_gone: mpsc::Receiver<()>,
}

impl Work {
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub fn cancelled(&self) -> &AtomicBool {
        &self.cancelled
    }
}

impl WorkScope {
    pub fn new(cancelled: Arc<AtomicBool>) -> Self {
        // Nothing is ever sent; one is the smallest channel there is.
        let (alive, all_gone) = mpsc::channel(1);
        Self {
            cancelled,
            alive,
            all_gone,
        }
    }

    pub fn work(&self) -> Work {
        Work {
            cancelled: Arc::clone(&self.cancelled),
            _alive: self.alive.clone(),
        }
    }

    /// Asks all work to stop and waits until it has.
    pub async fn cancel(self) {
        let Self {
            cancelled,
            alive,
            mut all_gone,
        } = self;
        cancelled.store(true, Ordering::Relaxed);
        drop(alive);
        while all_gone.recv().await.is_some() {}
    }
}
