//! Tells of those with whom nothing is spoken, of each address once in a while.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::limits::{REFUSAL_TOLD_EVERY, REFUSALS_MAX};

/// Counts refusals and writes them to the log, each address once a minute.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    told: Mutex<RefusedCallers>,
}

/// When the log last named a refused caller of each address, and how many were refused in all.
#[derive(Debug, Default)]
struct RefusedCallers {
    at: BTreeMap<IpAddr, Instant>,
    count: u64,
}

impl Refusals {
    /// Whether this one is to be told of.
    fn note(&self, from: IpAddr, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.count += 1;
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= REFUSAL_TOLD_EVERY;
        if told.at.get(&from).is_some_and(|at| !is_old(at)) {
            return false;
        }
        told.at.retain(|_, at| !is_old(at));
        // With so many addresses within a minute another line helps nobody.
        if told.at.len() >= REFUSALS_MAX {
            return false;
        }
        told.at.insert(from, now);
        true
    }

    /// A caller was refused.
    pub fn tell(&self, from: IpAddr, why: &str) {
        if self.note(from, Instant::now()) {
            tracing::warn!(%from, why, "a server is refused; further attempts of this minute are not told");
        }
    }

    /// This server called an address and found another server than it meant, or one that refused it.
    pub fn tell_of_reached(&self, at: IpAddr, why: &str) {
        if self.note(at, Instant::now()) {
            tracing::warn!(%at, why, "a server cannot be spoken to; further attempts of this minute are not told");
        }
    }

    /// How many refusals there were.
    pub fn count(&self) -> u64 {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).count
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_is_told_of_once_a_minute() {
        let refusals = Refusals::default();
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let start = Instant::now();
        assert!(refusals.note(address(1), start));
        assert!(!refusals.note(address(1), start + Duration::from_secs(59)));
        assert!(refusals.note(address(2), start));
        assert!(refusals.note(address(1), start + REFUSAL_TOLD_EVERY));
        assert_eq!(refusals.count(), 4);
    }

    #[test]
    fn many_addresses_take_no_more_room() {
        let refusals = Refusals::default();
        let start = Instant::now();
        for number in 0..1_000_u32 {
            refusals.note(IpAddr::from(number.to_be_bytes()), start);
        }
        assert_eq!(refusals.told.lock().unwrap().at.len(), REFUSALS_MAX);
        let later = start + REFUSAL_TOLD_EVERY;
        assert!(refusals.note(IpAddr::from([1, 1, 1, 1]), later));
        assert_eq!(refusals.told.lock().unwrap().at.len(), 1);
    }
}
