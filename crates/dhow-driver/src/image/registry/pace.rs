//! How slowly a layer may arrive. Whoever fetches a layer holds its lock, so that others who want the same one wait: a
//! registry that answers by drips must not keep them waiting for ever.

use std::time::Duration;

/// Only time spent waiting for the registry counts, so that a slow disk of this node is not taken for a slow registry.
const WINDOW: Duration = Duration::from_secs(60);
/// 1 KiB a second: a fifth of what a modem gave, and no layer of a registry that works comes so slowly.
const MIN_WINDOW_BYTES: u64 = 60 * 1024;

/// What has arrived in the present window.
#[derive(Debug, Default)]
pub(super) struct Pace {
    waited: Duration,
    bytes: u64,
}

impl Pace {
    pub const TOO_SLOW: &'static str = "it sends a layer by drips, fewer than 60 KiB in a minute";

    /// Counts a piece that was waited for, and says whether a whole window has brought too little.
    pub fn is_too_slow(&mut self, waited: Duration, bytes: u64) -> bool {
        self.waited += waited;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.waited < WINDOW {
            return false;
        }
        let too_slow = self.bytes < MIN_WINDOW_BYTES;
        *self = Self::default();
        too_slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces_until_too_slow(waited: Duration, bytes: u64) -> Option<usize> {
        let mut pace = Pace::default();
        (1..=10_000).find(|_| pace.is_too_slow(waited, bytes))
    }

    #[test]
    fn drips_are_given_up_after_a_window() {
        assert_eq!(pieces_until_too_slow(Duration::from_secs(10), 1), Some(6));
        assert_eq!(pieces_until_too_slow(Duration::from_secs(29), 10_000), Some(3));
    }

    #[test]
    fn a_slow_line_is_waited_for() {
        assert_eq!(pieces_until_too_slow(Duration::from_secs(1), 1024), None);
        assert_eq!(pieces_until_too_slow(Duration::from_secs(29), 64 * 1024), None);
        assert_eq!(pieces_until_too_slow(Duration::ZERO, 1), None);
    }

    #[test]
    fn a_line_that_becomes_slow_is_noticed() {
        let mut pace = Pace::default();
        assert!(!pace.is_too_slow(Duration::from_secs(60), 1 << 30));
        assert!(pace.is_too_slow(Duration::from_secs(60), 1));
    }
}
