//! What all workers count together.

use std::sync::atomic::{AtomicU64, Ordering};

use super::latencies::Latencies;

/// The counters that all workers of a load run share. Workers add to them, and the bars read them.
#[derive(Debug, Default)]
pub struct Tally {
    /// Connections that could not be made, or sessions that could not be opened in time.
    pub unreached: AtomicU64,
    /// Refusals because the server has too much to do, by what was asked.
    pub joins_refused: AtomicU64,
    pub reports_refused: AtomicU64,
    /// Answers that send elsewhere.
    pub sent_on: AtomicU64,
    /// Refusals that asking again does not help; the last one is kept for people.
    pub turned_away: AtomicU64,
    pub last_refusal: std::sync::Mutex<Option<String>>,
    /// Sessions that ended, whoever ended them.
    pub sessions_ended: AtomicU64,
    pub heartbeats: AtomicU64,
    /// Reports of changes and inventories.
    pub reports: AtomicU64,
    pub joining: Latencies,
    pub opening: Latencies,
    pub beating: Latencies,
    pub reporting: Latencies,
    /// From the assignment of a replica to the acknowledgement that it runs.
    pub delivering: Latencies,
}

impl Tally {
    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn turn_away(&self, why: String) {
        Self::count(&self.turned_away);
        let mut last = self
            .last_refusal
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *last = Some(why);
    }
}
