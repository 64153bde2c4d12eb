//! How often and after what time a request is tried again.

use std::time::Duration;

/// Exponential back-off with jitter. Progress starts the count anew, so that a large layer arrives over a
/// bad line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in a row without progress, the first included.
    pub max_attempts: u32,
    pub first_wait: Duration,
    /// Also bounds what a registry may ask for with `Retry-After`.
    pub max_wait: Duration,
}

/// Five attempts wait for 0.5, 1, 2 and 4 s: a registry's restart is bridged, a wrong name is told soon.
impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            first_wait: Duration::from_millis(500),
            max_wait: Duration::from_secs(30),
        }
    }
}

impl RetryPolicy {
    /// The wait after this many failed attempts. `asked` is what the registry wants.
    pub(super) fn wait(&self, failed_attempts: u32, asked: Option<Duration>) -> Duration {
        let doubled = 2_u32.saturating_pow(failed_attempts.saturating_sub(1));
        let full = self.first_wait.saturating_mul(doubled).min(self.max_wait);
        // Between half and all of it, so that many nodes do not come back at the same moment.
        let jittered = full.mul_f64(0.5 + rand::random::<f64>() / 2.0);
        jittered.max(asked.unwrap_or_default().min(self.max_wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_are_bounded() {
        let policy = RetryPolicy::default();
        for failed in 1..200 {
            let wait = policy.wait(failed, None);
            assert!(
                wait >= policy.first_wait / 2 && wait <= policy.max_wait,
                "{failed}: {wait:?}"
            );
        }
        assert!(policy.wait(4, None) >= policy.first_wait * 4);
        assert_eq!(
            policy.wait(1, Some(Duration::from_secs(9))),
            Duration::from_secs(9)
        );
        assert_eq!(policy.wait(1, Some(Duration::from_secs(9_000))), policy.max_wait);
    }
}
