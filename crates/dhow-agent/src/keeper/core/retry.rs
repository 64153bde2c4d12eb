//! The pause before a call is made again.

use std::time::Duration;

use crate::limits::{RETRY_FIRST, RETRY_MAX};
use crate::session::SessionError;

/// How often a call has failed in a row, and so how long the next attempt waits.
#[derive(Debug, Default)]
pub(super) struct Retry {
    failures: u32,
}

impl Retry {
    pub fn pause(&self) -> Duration {
        match self.failures {
            0 => Duration::ZERO,
            n => RETRY_FIRST.saturating_mul(1 << (n - 1).min(10)).min(RETRY_MAX),
        }
    }

    /// Counts a failure, and says it once.
    pub fn failed(&mut self, what: &str, error: &SessionError) {
        if self.failures == 0 {
            tracing::warn!(%error, "{what}; trying again");
        }
        self.again();
    }

    /// Counts a failure that was said elsewhere.
    pub fn again(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest() {
        let mut retry = Retry::default();
        let mut pauses = Vec::new();
        for _ in 0..20 {
            pauses.push(retry.pause());
            retry.again();
        }
        assert_eq!(pauses[..3], [Duration::ZERO, RETRY_FIRST, RETRY_FIRST * 2]);
        assert!(pauses.is_sorted());
        assert_eq!(retry.pause(), RETRY_MAX);
    }
}
