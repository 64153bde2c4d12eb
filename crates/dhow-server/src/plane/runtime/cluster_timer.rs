//! The cluster's own time on this server: the last committed time and what has passed since on the monotonic
//! clock. A step of the wall clock changes nothing; a restart goes on from the last committed time, so that time
//! in which no server ran does not count.

use dhow_core::time::ClusterTime;

/// Computes cluster time from the last committed time and a monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterTimer {
    base: ClusterTime,
    base_monotonic_ms: u64,
}

impl ClusterTimer {
    pub fn new(committed: ClusterTime, monotonic_ms: u64) -> Self {
        Self {
            base: committed,
            base_monotonic_ms: monotonic_ms,
        }
    }

    /// The cluster's time now.
    pub fn now(&self, monotonic_ms: u64) -> ClusterTime {
        let elapsed_ms = monotonic_ms.saturating_sub(self.base_monotonic_ms);
        ClusterTime(self.base.0.saturating_add(elapsed_ms))
    }

    /// An entry was committed. Time only moves on where the entry is ahead: an own entry is as old as its way
    /// through the log took, and going back to it would make the cluster's time slow.
    pub fn committed(&mut self, time: ClusterTime, monotonic_ms: u64) {
        if time > self.now(monotonic_ms) {
            *self = Self::new(time, monotonic_ms);
        }
    }

    /// The monotonic time at which the cluster's time will be this.
    pub fn monotonic_at(&self, time: ClusterTime) -> u64 {
        self.base_monotonic_ms
            .saturating_add(time.0.saturating_sub(self.base.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_on_from_the_last_committed_time() {
        let mut timer = ClusterTimer::new(ClusterTime(5_000), 100);
        assert_eq!(timer.now(100), ClusterTime(5_000));
        assert_eq!(timer.now(350), ClusterTime(5_250));
        assert_eq!(timer.now(0), ClusterTime(5_000), "never before what is committed");
        timer.committed(ClusterTime(5_100), 350);
        assert_eq!(
            timer.now(400),
            ClusterTime(5_300),
            "an own entry does not slow it"
        );
        timer.committed(ClusterTime(9_000), 400);
        assert_eq!(timer.now(401), ClusterTime(9_001), "another leader was ahead");
        assert_eq!(timer.monotonic_at(ClusterTime(9_500)), 900);
    }
}
