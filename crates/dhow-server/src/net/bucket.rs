//! A token bucket on monotonic milliseconds.

/// Units of a token: a rate of one per second refills one unit each millisecond.
const TOKEN: u64 = 1_000;

/// A token bucket: it lets so many calls through a second, and a burst after a rest. The limits of nodes, of joins
/// and of webhooks are made of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    units: u64,
    at_ms: u64,
    per_second: u32,
    burst: u32,
}

impl Bucket {
    /// A full one.
    pub fn new(per_second: u32, burst: u32, now_ms: u64) -> Self {
        Self {
            units: u64::from(burst) * TOKEN,
            at_ms: now_ms,
            per_second,
            burst,
        }
    }

    /// Takes a token, where there is one.
    pub fn take(&mut self, now_ms: u64) -> bool {
        self.take_many(1, now_ms)
    }

    /// Takes so many, where they are there; never more than fit into it.
    pub fn take_many(&mut self, count: u32, now_ms: u64) -> bool {
        self.refill(now_ms);
        match self.units.checked_sub(u64::from(count.min(self.burst)) * TOKEN) {
            Some(rest) => {
                self.units = rest;
                true
            }
            None => false,
        }
    }

    /// Whether nothing would be lost by making it anew.
    pub fn is_full(&mut self, now_ms: u64) -> bool {
        self.refill(now_ms);
        self.units == u64::from(self.burst) * TOKEN
    }

    fn refill(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        self.at_ms = self.at_ms.max(now_ms);
        let refilled = passed_ms.saturating_mul(u64::from(self.per_second));
        self.units = self
            .units
            .saturating_add(refilled)
            .min(u64::from(self.burst) * TOKEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let mut bucket = Bucket::new(2, 3, 100);
        assert!(bucket.is_full(100));
        let taken = |bucket: &mut Bucket, now_ms| (0..10).filter(|_| bucket.take(now_ms)).count();
        assert_eq!(taken(&mut bucket, 100), 3);
        assert_eq!(taken(&mut bucket, 599), 0);
        assert_eq!(taken(&mut bucket, 600), 1);
        assert_eq!(taken(&mut bucket, 50), 0, "a clock that runs back gives nothing");
        assert!(!bucket.is_full(700));
        assert_eq!(taken(&mut bucket, u64::MAX), 3);
    }
}
