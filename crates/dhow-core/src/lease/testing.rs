//! How the random histories of this module are drawn.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// The same cases each time; many more of them in a long round, which is compiled for it.
pub fn config() -> ProptestConfig {
    let long = option_env!("DHOW_TEST_LONG").is_some();
    ProptestConfig {
        cases: if long { 50_000 } else { 200 },
        rng_seed: RngSeed::Fixed(3669),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
