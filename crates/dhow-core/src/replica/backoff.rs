//! How long a replica waits before it is started again: doubling, bounded, with jitter that both the agent
//! and its mirror derive from the replica itself.

use crate::ids::ReplicaName;
use crate::spec::{Backoff, TimeSpan};

/// The wait after `failures` in a row. Jitter takes off up to a quarter, so that replicas that failed
/// together do not start together, and the stated maximum stays the maximum.
pub fn backoff_delay(backoff: &Backoff, failures: u32, name: &ReplicaName) -> TimeSpan {
    let doublings = failures.saturating_sub(1).min(63);
    let doubled = backoff.initial.as_millis().saturating_mul(1u64 << doublings);
    let full_ms = doubled.min(backoff.max.as_millis());
    let mut hasher = blake3::Hasher::new();
    hasher.update(name.to_string().as_bytes());
    hasher.update(&name.generation.0.to_le_bytes());
    hasher.update(&failures.to_le_bytes());
    let byte = hasher.finalize().as_bytes()[0];
    let off_ms = u128::from(full_ms / 4) * u128::from(byte) / 255;
    TimeSpan::from_millis(full_ms - u64::try_from(off_ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{DeploymentName, Generation, RoleName, ServiceName};

    #[test]
    fn doubles_to_its_maximum_and_never_overflows() {
        let name = ReplicaName {
            deployment: DeploymentName::fallback(),
            service: ServiceName::new("web").unwrap(),
            role: RoleName::fallback(),
            index: 0,
            generation: Generation(1),
        };
        let backoff = Backoff::default();
        for (failures, full_ms) in [
            (0, 1_000),
            (1, 1_000),
            (2, 2_000),
            (3, 4_000),
            (7, 60_000),
            (64, 60_000),
            (u32::MAX, 60_000),
        ] {
            let delay_ms = backoff_delay(&backoff, failures, &name).as_millis();
            assert!(
                delay_ms <= full_ms && delay_ms >= full_ms * 3 / 4,
                "{failures}: {delay_ms}"
            );
        }
        let huge = Backoff {
            initial: TimeSpan::from_millis(u64::MAX),
            max: TimeSpan::from_millis(u64::MAX),
        };
        assert!(backoff_delay(&huge, u32::MAX, &name).as_millis() >= u64::MAX / 4 * 3);
        let none = Backoff {
            initial: TimeSpan::ZERO,
            max: TimeSpan::ZERO,
        };
        assert_eq!(backoff_delay(&none, 5, &name), TimeSpan::ZERO);
    }
}
