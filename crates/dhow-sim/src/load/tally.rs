//! What all workers of a process count together.

use std::sync::atomic::{AtomicU64, Ordering};

use super::latencies::Latencies;
use super::talk::{Look, Timing};

/// The counters that the workers of one process share.
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
    turned_away: AtomicU64,
    last_refusal: std::sync::Mutex<Option<String>>,
    /// Sessions that ended against the worker's will, by server.
    ended_at: Vec<AtomicU64>,
    /// Sessions that a server sent to another one, where they belong.
    pub moved: AtomicU64,
    /// Calls that no answer came to in time.
    pub unanswered: AtomicU64,
    /// Servers that were left because nothing was heard of them.
    pub unheard: AtomicU64,
    /// Assignments below one that the same worker had before: there is never one.
    pub behind: AtomicU64,
    pub heartbeats: AtomicU64,
    pub joining: Latencies,
    pub opening: Latencies,
    pub reopening: Latencies,
    pub beating: Latencies,
    pub reporting: Latencies,
    pub delivering: Latencies,
}

impl Tally {
    pub fn new(servers: usize) -> Self {
        Self {
            ended_at: (0..servers).map(|_| AtomicU64::new(0)).collect(),
            ..Self::default()
        }
    }

    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn session_ended(&self, server: usize) {
        self.ended_at.get(server).into_iter().for_each(Self::count);
    }

    pub fn turn_away(&self, why: String) {
        Self::count(&self.turned_away);
        *self.last() = Some(why);
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.last_refusal
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn timed(&self, timing: Timing) -> &Latencies {
        match timing {
            Timing::Joining => &self.joining,
            Timing::Opening => &self.opening,
            Timing::Reopening => &self.reopening,
            Timing::Beating => &self.beating,
            Timing::Reporting => &self.reporting,
            Timing::Delivering | Timing::Telling => &self.delivering,
        }
    }

    /// The counters; what is counted at the seats is not in it.
    pub fn look(&self) -> Look {
        let told = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Look {
            ended_at: self.ended_at.iter().map(told).collect(),
            moved: told(&self.moved),
            unanswered: told(&self.unanswered),
            unheard: told(&self.unheard),
            behind: told(&self.behind),
            unreached: told(&self.unreached),
            joins_refused: told(&self.joins_refused),
            reports_refused: told(&self.reports_refused),
            sent_on: told(&self.sent_on),
            turned_away: told(&self.turned_away),
            last_refusal: self.last().clone(),
            heartbeats: told(&self.heartbeats),
            ..Look::default()
        }
    }
}
