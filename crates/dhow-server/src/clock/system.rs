//! The clock of the host.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::{Clock, Sleep};

/// Counts monotonic time from its own making.
#[derive(Debug, Clone)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall_unix_ms(&self) -> i64 {
        let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => ms(since),
            Err(before) => -ms(before.duration()),
        }
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep_until_monotonic(&self, at_ms: u64) -> Sleep {
        match self.origin.checked_add(Duration::from_millis(at_ms)) {
            Some(at) => Box::pin(tokio::time::sleep_until(at)),
            // Beyond what the host can count: that is never.
            None => Box::pin(std::future::pending()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sleeps_on_its_own_monotonic_time() {
        let clock = SystemClock::new();
        clock.sleep_until_monotonic(2_500).await;
        assert_eq!(clock.monotonic_ms(), 2_500);
        clock.sleep_until_monotonic(100).await;
        assert_eq!(clock.monotonic_ms(), 2_500, "the past is at once");
    }

    #[test]
    fn wall_time_is_of_this_century() {
        let years = SystemClock::new().wall_unix_ms() / (365 * 24 * 3_600 * 1_000);
        assert!((50..130).contains(&years), "{years} years after 1970");
    }
}
