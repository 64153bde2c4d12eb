//! The time to live that grows with the cluster, so that heartbeats keep below a fixed rate.

use serde::{Deserialize, Serialize};

/// What the leader needs to grant times to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdaptiveTtlConfig {
    pub min_ttl_secs: u32,
    pub max_ttl_secs: u32,
    /// What a lease lives on after its time to live has passed.
    pub grace_secs: u32,
    /// The ceiling for the whole cluster.
    pub max_heartbeats_per_second: u32,
    /// The time to live right after an election, while the new leader warms up.
    pub failover_ttl_secs: u32,
}

impl Default for AdaptiveTtlConfig {
    fn default() -> Self {
        Self {
            min_ttl_secs: 10,
            max_ttl_secs: 600,
            grace_secs: 10,
            max_heartbeats_per_second: 50,
            failover_ttl_secs: 300,
        }
    }
}

impl AdaptiveTtlConfig {
    /// The time to live for a cluster of `workers`: long enough that all of them together stay below the
    /// rate. The maximum wins where a caller made the minimum larger than it.
    pub fn compute_ttl(&self, workers: u32) -> u32 {
        let rate = self.max_heartbeats_per_second;
        if rate == 0 {
            return self.max_ttl_secs;
        }
        let rounded_up_secs = workers.saturating_add(rate - 1) / rate;
        rounded_up_secs.max(self.min_ttl_secs).min(self.max_ttl_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ttl_grows_with_the_cluster() {
        let config = AdaptiveTtlConfig::default();
        for (workers, ttl_secs) in [
            (0, 10),
            (1, 10),
            (10, 10),
            (100, 10),
            (500, 10),
            (501, 11),
            (1_000, 20),
            (10_000, 200),
            (30_000, 600),
            (100_000, 600),
            (u32::MAX, 600),
        ] {
            assert_eq!(config.compute_ttl(workers), ttl_secs, "{workers} workers");
        }
    }

    #[test]
    fn extremes_never_panic() {
        let config = |min_ttl_secs, max_ttl_secs, max_heartbeats_per_second| AdaptiveTtlConfig {
            min_ttl_secs,
            max_ttl_secs,
            max_heartbeats_per_second,
            ..AdaptiveTtlConfig::default()
        };
        assert_eq!(
            config(10, 600, 0).compute_ttl(5),
            600,
            "a rate of 0 gives the maximum"
        );
        assert_eq!(config(900, 600, 0).compute_ttl(5), 600);
        assert_eq!(config(900, 600, 50).compute_ttl(5), 600, "the maximum wins");
        assert_eq!(config(900, 600, 50).compute_ttl(u32::MAX), 600);
        assert_eq!(config(0, u32::MAX, 1).compute_ttl(u32::MAX), u32::MAX);
        // The sum saturates before it is divided, so that the largest cluster at rate 2 is not rounded up.
        assert_eq!(config(0, u32::MAX, 2).compute_ttl(u32::MAX), u32::MAX / 2);
        assert_eq!(config(0, u32::MAX, u32::MAX).compute_ttl(u32::MAX), 1);
        assert_eq!(config(0, u32::MAX, u32::MAX).compute_ttl(0), 0);
        assert_eq!(config(0, 0, 50).compute_ttl(10_000), 0);
    }

    #[test]
    fn absent_fields_are_the_defaults() {
        let config: AdaptiveTtlConfig = serde_json::from_str("{\"min_ttl_secs\":3}").unwrap();
        assert_eq!(
            config,
            AdaptiveTtlConfig {
                min_ttl_secs: 3,
                ..AdaptiveTtlConfig::default()
            }
        );
        assert_eq!(
            serde_json::to_string(&AdaptiveTtlConfig::default()).unwrap(),
            "{\"min_ttl_secs\":10,\"max_ttl_secs\":600,\"grace_secs\":10,\
             \"max_heartbeats_per_second\":50,\"failover_ttl_secs\":300}"
        );
    }
}
