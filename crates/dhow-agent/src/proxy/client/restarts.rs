//! How often a proxy that keeps ending is started again.

use std::time::{Duration, Instant};

/// The pause before the second restart in a row; the first comes at once. Doubled with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A proxy that has run this long was well: the count begins anew.
const STABLE: Duration = Duration::from_secs(60);

/// Counts ends in a row. The time is passed in.
#[derive(Debug, Default)]
pub struct Restarts {
    ends: u32,
    started: Option<Instant>,
    not_before: Option<Instant>,
}

impl Restarts {
    pub fn started(&mut self, now: Instant) {
        self.started = Some(now);
    }

    /// Each start ends once, however often that is noticed.
    pub fn ended(&mut self, now: Instant) {
        let Some(started) = self.started.take() else {
            return;
        };
        if now.duration_since(started) >= STABLE {
            self.ends = 0;
        }
        let pause = match self.ends {
            0 => Duration::ZERO,
            ends => PAUSE_FIRST.saturating_mul(1 << (ends - 1).min(16)).min(PAUSE_MAX),
        };
        self.ends = self.ends.saturating_add(1);
        self.not_before = Some(now + pause);
    }

    pub fn ends(&self) -> u32 {
        self.ends
    }

    /// How long to wait before the next start.
    pub fn pause(&self, now: Instant) -> Duration {
        let left = self.not_before.map(|then| then.saturating_duration_since(now));
        left.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_a_stable_run_forgives() {
        let begin = Instant::now();
        let mut restarts = Restarts::default();
        assert_eq!(restarts.pause(begin), Duration::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            restarts.started(begin);
            restarts.ended(begin);
            pauses.push(restarts.pause(begin));
        }
        assert_eq!(pauses.first(), Some(&Duration::ZERO));
        assert_eq!(pauses.get(1), Some(&PAUSE_FIRST));
        assert_eq!(pauses.get(2), Some(&(PAUSE_FIRST * 2)));
        assert_eq!(pauses.last(), Some(&PAUSE_MAX));
        assert_eq!(restarts.ends(), 10);
        // Noticed a second time, it is the same end.
        restarts.ended(begin);
        assert_eq!(restarts.ends(), 10);
        restarts.started(begin);
        restarts.ended(begin + STABLE);
        assert_eq!(restarts.pause(begin + STABLE), Duration::ZERO);
        assert_eq!(restarts.ends(), 1);
    }
}
