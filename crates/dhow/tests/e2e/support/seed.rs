//! Chance from a seed.

use std::time::{SystemTime, UNIX_EPOCH};

/// Printed when it is made; `DHOW_TEST_SEED` gives the same again.
pub struct Seed(u64);

impl Seed {
    pub fn new(what: &str) -> Self {
        let given = std::env::var("DHOW_TEST_SEED").ok();
        let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            u64::from(now.subsec_nanos()) ^ now.as_secs()
        });
        eprintln!("{what}: DHOW_TEST_SEED={seed}");
        Self(seed)
    }

    /// The next number, by splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Another one that follows from this.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// One of `0..bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap();
        usize::try_from(self.next() % bound).unwrap()
    }

    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
