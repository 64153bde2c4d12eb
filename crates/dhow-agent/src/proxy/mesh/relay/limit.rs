//! How many bytes may pass in a second, for all that is passed on together. Pure but for the lock: moments come in.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What may pass at once after a rest, as a part of a second.
const BURST_PART: u64 = 4;

/// A limit that is shared by all streams. Who has taken more than there was waits until that is made up for, so that streams
/// share it by the pieces that they take.
pub struct Limit(Mutex<Account>);

struct Account {
    bytes_per_second: u64,
    /// In billionths of a byte, below zero where more was taken than there was.
    left: i128,
    at: Option<Instant>,
}

const NANOS: i128 = 1_000_000_000;

impl Limit {
    pub fn new(bytes_per_second: u64) -> Self {
        let bytes_per_second = bytes_per_second.max(1);
        Self(Mutex::new(Account {
            bytes_per_second,
            left: burst(bytes_per_second),
            at: None,
        }))
    }

    pub fn set(&self, bytes_per_second: u64) {
        let mut account = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        account.bytes_per_second = bytes_per_second.max(1);
    }

    /// Takes so many bytes; how long who took them has to wait before it takes more.
    pub fn take(&self, bytes: usize, now: Instant) -> Duration {
        let mut account = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = account.bytes_per_second;
        let since = account
            .at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let gained = i128::from(rate).saturating_mul(i128::try_from(since.as_nanos()).unwrap_or(i128::MAX));
        let taken = i128::try_from(bytes).unwrap_or(i128::MAX).saturating_mul(NANOS);
        account.left = account
            .left
            .saturating_add(gained)
            .min(burst(rate))
            .saturating_sub(taken);
        account.at = Some(now);
        let missing = account.left.saturating_neg().max(0);
        let nanos = missing / i128::from(rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

fn burst(bytes_per_second: u64) -> i128 {
    i128::from((bytes_per_second / BURST_PART).max(1)).saturating_mul(NANOS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_much_passes_in_a_second_however_it_is_taken() {
        let limit = Limit::new(1_000_000);
        let begin = Instant::now();
        let mut now = begin;
        let mut taken = 0;
        while now < begin + Duration::from_secs(10) {
            taken += 1_000;
            now += limit.take(1_000, now);
        }
        assert!((10_000_000..=10_252_000).contains(&taken), "{taken}");
        // A rest is worth a quarter of a second and no more.
        let later = now + Duration::from_secs(3600);
        assert_eq!(limit.take(250_000, later), Duration::ZERO);
        assert_eq!(limit.take(500_000, later), Duration::from_millis(500));
        // Two that wait share what comes: each has waited for the other's too.
        assert_eq!(limit.take(500_000, later), Duration::from_secs(1));
    }
}
