//! How long this node's disk takes to make something durable, as measured: what waits for a disk waits longer where it
//! is slow. Who takes a slow disk for a silent server ends elections that would have come to an end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::limits::{PACE_MAX_MS, PACE_QUICK_MS};

/// What has not been measured yet.
const UNKNOWN: u64 = u64::MAX;

/// The measured time of durable writes of one node; elections and timeouts of its log stretch by it.
#[derive(Debug)]
pub struct Pace {
    /// The mean of the last few writes, in microseconds.
    mean_us: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            mean_us: AtomicU64::new(UNKNOWN),
        }
    }
}

impl Pace {
    /// Something took this long to become durable. One slow write among quick ones counts for a quarter.
    pub fn took(&self, time: Duration) {
        let taken = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let taken = taken.min(PACE_MAX_MS * 1_000);
        let mean = match self.mean_us.load(Ordering::Relaxed) {
            UNKNOWN => taken,
            mean => (mean * 3 + taken) / 4,
        };
        // Of two at the same time one may be lost: the next says the same.
        self.mean_us.store(mean, Ordering::Relaxed);
    }

    /// How much longer is waited for each write that has to be waited for: nothing on a disk that is quick.
    pub fn slack(&self) -> Duration {
        match self.mean_us.load(Ordering::Relaxed) {
            UNKNOWN => Duration::ZERO,
            mean if mean < PACE_QUICK_MS * 1_000 => Duration::ZERO,
            mean => Duration::from_micros(mean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(writes_ms: &[u64]) -> u128 {
        let pace = Pace::default();
        for ms in writes_ms {
            pace.took(Duration::from_millis(*ms));
        }
        pace.slack().as_millis()
    }

    #[test]
    fn a_slow_disk_is_known_after_its_first_write() {
        assert_eq!(after(&[]), 0);
        assert_eq!(after(&[500]), 500);
        assert_eq!(after(&[500, 500, 500]), 500);
    }

    #[test]
    fn a_quick_disk_costs_no_time_and_one_slow_write_little() {
        assert_eq!(after(&[3, 49, 20]), 0);
        assert_eq!(after(&[4, 4, 180]), 0);
        assert_eq!(after(&[500, 4, 4, 4, 4, 4, 4, 4, 4, 4]), 0, "it is forgotten");
    }

    #[test]
    fn a_disk_that_hangs_is_not_waited_for_without_end() {
        assert_eq!(after(&[3_600_000]), u128::from(PACE_MAX_MS));
    }
}
