//! The share of a canary, and what is counted of it and of the version beside it.
//!
//! A route asks for a turn and gets the version that has it; whoever carries a request out says at its end how it went. The
//! canary never gets more than its share of the requests to one endpoint of this node, whatever they are balanced by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use dhow_core::rollout::{Counted, Figures};
use hyper::HeaderMap;

use super::table::Canary;

/// Which of two versions a backend is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Canary,
    Base,
}

/// The turns and the counts of one endpoint's canary. All routes of the endpoint have the same ones.
pub struct CanaryMeter {
    pub canary: Canary,
    turns: AtomicU64,
    of_canary: Counts,
    of_base: Counts,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    errors: AtomicU64,
}

impl Counts {
    fn counted(&self) -> Counted {
        // Errors first: none is seen without its request.
        let errors = self.errors.load(Ordering::Acquire);
        Counted {
            requests: self.requests.load(Ordering::Acquire),
            errors,
        }
    }
}

impl CanaryMeter {
    pub fn new(canary: Canary) -> Self {
        Self {
            canary,
            turns: AtomicU64::new(0),
            of_canary: Counts::default(),
            of_base: Counts::default(),
        }
    }

    /// The same counts, with another share from now on.
    pub fn with_share(&self, canary: Canary) -> Self {
        let made = Self::new(canary);
        let figures = self.figures();
        for (to, from) in [(&made.of_canary, figures.canary), (&made.of_base, figures.base)] {
            to.requests.store(from.requests, Ordering::Release);
            to.errors.store(from.errors, Ordering::Release);
        }
        made
    }

    /// The version that the next request goes to: every `of / share`th to the canary, so that of any number of them it had
    /// no more than its share.
    pub fn turn(&self) -> Version {
        let Canary { share, of, .. } = self.canary;
        let before = self.turns.fetch_add(1, Ordering::Relaxed);
        let had = |turns: u64| u128::from(turns) * u128::from(share) / u128::from(of.max(1));
        match had(before.wrapping_add(1)) > had(before) {
            true => Version::Canary,
            false => Version::Base,
        }
    }

    /// The version of a client that stays where it was: the same one as long as there is this canary.
    pub fn turn_of(&self, client: u64) -> Version {
        let Canary { share, of, .. } = self.canary;
        match client % u64::from(of.max(1)) < u64::from(share) {
            true => Version::Canary,
            false => Version::Base,
        }
    }

    pub fn figures(&self) -> Figures {
        Figures {
            canary: self.of_canary.counted(),
            base: self.of_base.counted(),
        }
    }
}

/// How a request went that is still to be counted.
const WELL: u8 = 0;
const FAILED: u8 = 1;
const UNSENT: u8 = 2;

/// One request to one of two versions: counted when it is over.
pub struct Tally {
    meter: Arc<CanaryMeter>,
    version: Version,
    outcome: AtomicU8,
}

impl Tally {
    pub fn new(meter: &Arc<CanaryMeter>, version: Version) -> Self {
        Self {
            meter: Arc::clone(meter),
            version,
            outcome: AtomicU8::new(WELL),
        }
    }

    /// The version failed: it did not answer, broke off, or answered that it failed.
    pub fn fails(&self) {
        self.outcome.store(FAILED, Ordering::Relaxed);
    }

    /// Nothing came of it that says anything about the version.
    pub fn says_nothing(&self) {
        self.outcome.store(UNSENT, Ordering::Relaxed);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let outcome = *self.outcome.get_mut();
        let counts = match self.version {
            Version::Canary => &self.meter.of_canary,
            Version::Base => &self.meter.of_base,
        };
        if outcome == UNSENT {
            return;
        }
        counts.requests.fetch_add(1, Ordering::Release);
        if outcome == FAILED {
            counts.errors.fetch_add(1, Ordering::Release);
        }
    }
}

/// Whether headers or trailers say that a call of gRPC has failed by fault of who answers: the statuses that stand for
/// answers of HTTP from 500 on. What the caller did wrong is none of them.
pub fn is_failed_grpc(headers: &HeaderMap) -> bool {
    // UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS.
    const FAILED: [&[u8]; 6] = [b"2", b"4", b"12", b"13", b"14", b"15"];
    let status = headers.get("grpc-status").map(|status| status.as_bytes());
    status.is_some_and(|status| FAILED.contains(&status))
}

#[cfg(test)]
mod tests {
    use hyper::http::HeaderValue;

    use super::*;

    fn meter(share: u32, of: u32) -> Arc<CanaryMeter> {
        let number = 2;
        Arc::new(CanaryMeter::new(Canary { number, share, of }))
    }

    #[test]
    fn a_canary_has_its_share_of_any_number_of_requests_and_no_more() {
        for (share, of) in [(1, 41), (3, 7), (1, 2), (5, 5), (0, 3), (1, 0)] {
            let meter = meter(share, of);
            let mut had = 0_u64;
            for requests in 1..=2_000_u64 {
                had += u64::from(meter.turn() == Version::Canary);
                assert_eq!(
                    had,
                    requests * u64::from(share) / u64::from(of.max(1)),
                    "{share} of {of}"
                );
            }
        }
        let meter = meter(1, 4);
        let clients = (0..1_000).filter(|client| meter.turn_of(*client) == Version::Canary);
        assert_eq!(clients.count(), 250);
    }

    #[test]
    fn requests_are_counted_at_their_end() {
        let meter = meter(1, 2);
        let begun = Tally::new(&meter, Version::Canary);
        assert_eq!(meter.figures(), Figures::default());
        begun.fails();
        drop(begun);
        drop(Tally::new(&meter, Version::Base));
        let unsent = Tally::new(&meter, Version::Base);
        unsent.says_nothing();
        drop(unsent);
        let counted = |requests, errors| Counted { requests, errors };
        let all = Figures {
            canary: counted(1, 1),
            base: counted(1, 0),
        };
        assert_eq!(meter.figures(), all);
    }

    #[test]
    fn a_call_fails_by_fault_of_who_answers_or_of_who_calls() {
        let status = |status: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", HeaderValue::from_static(status));
            headers
        };
        for failed in ["2", "4", "12", "13", "14", "15"] {
            assert!(is_failed_grpc(&status(failed)), "{failed}");
        }
        for other in ["0", "1", "3", "5", "7", "16", "", "99"] {
            assert!(!is_failed_grpc(&status(other)), "{other}");
        }
        assert!(!is_failed_grpc(&HeaderMap::new()));
    }
}
