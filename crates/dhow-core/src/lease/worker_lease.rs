//! The record of a lease, as listings and other servers see it. It shows wall time; what the leader acts on
//! is its own monotonic clock.

use serde::{Deserialize, Serialize};

use super::worker_profile::WorkerProfile;

/// One lease as the contract names its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerLease {
    pub node_id: u64,
    pub profile: WorkerProfile,
    pub acquired_unix_secs: i64,
    pub renewed_unix_secs: i64,
    pub ttl_secs: u32,
    /// The grace at the time of the last renewal, so that a later change of the configuration never shortens
    /// what was promised.
    pub grace_secs: u32,
}

impl WorkerLease {
    /// Whether the lease has run out under the grace given, which overrides the stored one for a change of
    /// leader. At exactly the end of the grace it still lives; a clock that ran backwards expires nobody.
    pub fn is_expired(&self, now_unix_secs: i64, grace_secs: u32) -> bool {
        let silent_secs = now_unix_secs.saturating_sub(self.renewed_unix_secs).max(0);
        // Two u32 always fit an i64: the sum needs no saturation.
        silent_secs > i64::from(self.ttl_secs) + i64::from(grace_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(renewed_unix_secs: i64, ttl_secs: u32) -> WorkerLease {
        WorkerLease {
            node_id: 7,
            profile: WorkerProfile {
                api_addr: ([127, 0, 0, 1], 3669).into(),
                os: "linux".into(),
                arch: "x86_64".into(),
                labels: Default::default(),
                cpu_total: 0,
                memory_total_bytes: 0,
            },
            acquired_unix_secs: renewed_unix_secs,
            renewed_unix_secs,
            ttl_secs,
            grace_secs: 10,
        }
    }

    #[test]
    fn it_lives_up_to_and_including_ttl_and_grace() {
        let lease = lease(1_000, 20);
        assert!(!lease.is_expired(1_000, 10));
        assert!(!lease.is_expired(1_030, 10));
        assert!(lease.is_expired(1_031, 10));
        assert!(
            !lease.is_expired(1_031, 11),
            "the grace given overrides the stored one"
        );
        assert!(lease.is_expired(1_021, 0));
    }

    #[test]
    fn a_clock_that_runs_backwards_expires_nobody() {
        for now in [999, 0, -1, i64::MIN] {
            assert!(!lease(1_000, 0).is_expired(now, 0), "at {now}");
        }
    }

    #[test]
    fn extremes_saturate() {
        assert!(lease(i64::MIN, u32::MAX).is_expired(i64::MAX, u32::MAX));
        assert!(!lease(i64::MAX, 0).is_expired(i64::MIN, 0));
        assert!(!lease(i64::MIN, 0).is_expired(i64::MIN, 0));
        let both_largest = 2 * i64::from(u32::MAX);
        assert!(!lease(0, u32::MAX).is_expired(both_largest, u32::MAX));
        assert!(lease(0, u32::MAX).is_expired(both_largest + 1, u32::MAX));
    }

    #[test]
    fn the_record_has_the_fixed_names() {
        assert_eq!(
            serde_json::to_string(&lease(5, 20)).unwrap(),
            "{\"node_id\":7,\"profile\":{\"api_addr\":\"127.0.0.1:3669\",\"os\":\"linux\",\"arch\":\"x86_64\",\
             \"cpu_total\":0,\"memory_total_bytes\":0},\"acquired_unix_secs\":5,\"renewed_unix_secs\":5,\
             \"ttl_secs\":20,\"grace_secs\":10}"
        );
    }
}
