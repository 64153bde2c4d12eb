//! From CPU time to the share of it: what was added since the last look.

use std::collections::{BTreeMap, BTreeSet};

use dhow_core::ids::ReplicaName;
use tokio::time::Instant;

#[derive(Clone, Copy)]
struct Sample {
    pid: u32,
    cpu_us: u64,
    at: Instant,
}

/// The last look at each replica.
#[derive(Default)]
pub struct Rates {
    samples: BTreeMap<ReplicaName, Sample>,
}

impl Rates {
    /// Thousandths of a core since the last look; 0 at the first one, and after a restart.
    pub fn cpu_milli(&mut self, name: &ReplicaName, pid: u32, cpu_us: u64, at: Instant) -> u64 {
        let sample = Sample { pid, cpu_us, at };
        let before = self.samples.insert(name.clone(), sample);
        let Some(before) = before.filter(|before| before.pid == pid) else {
            return 0;
        };
        let elapsed_us = at.duration_since(before.at).as_micros().max(1);
        let added_us = u128::from(cpu_us.saturating_sub(before.cpu_us));
        u64::try_from(added_us * 1_000 / elapsed_us).unwrap_or(u64::MAX)
    }

    /// Forgets those that are gone.
    pub fn retain(&mut self, names: &BTreeSet<ReplicaName>) {
        self.samples.retain(|name, _| names.contains(name));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dhow_core::ids::{DeploymentName, Generation, RoleName, ServiceName};

    use super::*;

    #[test]
    fn a_share_is_what_was_added_by_the_same_process() {
        let name = ReplicaName {
            deployment: DeploymentName::fallback(),
            service: ServiceName::new("web").unwrap(),
            role: RoleName::fallback(),
            index: 0,
            generation: Generation(1),
        };
        let mut rates = Rates::default();
        let begin = Instant::now();
        let at = |secs| begin + Duration::from_secs(secs);
        assert_eq!(
            rates.cpu_milli(&name, 7, 9_000_000, at(0)),
            0,
            "nothing to compare with"
        );
        assert_eq!(rates.cpu_milli(&name, 7, 11_500_000, at(10)), 250);
        assert_eq!(
            rates.cpu_milli(&name, 8, 20_000_000, at(20)),
            0,
            "another process"
        );
        assert_eq!(
            rates.cpu_milli(&name, 8, 10_000_000, at(30)),
            0,
            "a count that went back"
        );
        assert_eq!(
            rates.cpu_milli(&name, 8, 12_000_000, at(30)),
            2_000_000_000,
            "no time has passed"
        );
        rates.retain(&BTreeSet::new());
        assert_eq!(rates.cpu_milli(&name, 8, 99_000_000, at(40)), 0);
    }
}
