//! How long a node waits before it tries again: longer each time, and never in step with the others.

use std::time::Duration;

/// Pauses grow from the first to the longest; each is drawn at random below that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Backoff {
    /// For the nodes of a raft cluster: few, and eager to hear a new leader.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(5),
        }
    }
}

impl Backoff {
    /// For workers: thousands may have lost their server at one moment.
    pub fn of_workers() -> Self {
        Self {
            first: Duration::from_secs(2),
            longest: Duration::from_secs(20),
        }
    }

    /// The pause after so many failures in a row; `random` is below one.
    pub(super) fn pause(&self, failures: u32, random: f64) -> Duration {
        let ceiling = self.first.saturating_mul(1 << failures.min(16)).min(self.longest);
        ceiling.mul_f64(random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest() {
        let backoff = Backoff::default();
        let most = |failures| backoff.pause(failures, 1.0).as_millis();
        assert_eq!(
            [most(0), most(1), most(5), most(6), most(60)],
            [100, 200, 3_200, 5_000, 5_000]
        );
        assert_eq!(backoff.pause(9, 0.0), Duration::ZERO);
        assert_eq!(backoff.pause(9, 0.5).as_millis(), 2_500);
    }
}
