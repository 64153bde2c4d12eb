//! Servers whose raft directory is another one than it was, as far as this node has met them. They ask again several
//! times a second; a person is told at once, and then once a minute how often.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the log has a line about one server.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Servers that are remembered. A cluster has seven; ids are proved by certificates before anything comes here.
const STRANGERS_MAX: usize = 64;

/// The servers that came with another store than the known one, and when a person was last told of each.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<BTreeMap<u64, Met>>);

#[derive(Clone, Copy, Debug)]
struct Met {
    told: Instant,
    /// How often since then.
    since: u64,
}

impl Strangers {
    /// Notes that a server was met with another store. Gives how often that was since the log last named it, where the
    /// log is to name it now.
    pub fn meet(&self, node: u64, now: Instant) -> Option<u64> {
        let mut all = self.lock();
        let fresh = Met { told: now, since: 0 };
        let is_full = all.len() >= STRANGERS_MAX;
        match all.get_mut(&node) {
            Some(met) if now.duration_since(met.told) < TELL_EVERY => {
                met.since = met.since.saturating_add(1);
                None
            }
            Some(met) => Some(std::mem::replace(met, fresh).since.saturating_add(1)),
            None if is_full => None,
            None => {
                all.insert(node, fresh);
                Some(1)
            }
        }
    }

    /// It is the one that is known.
    pub fn forget(&self, node: u64) {
        self.lock().remove(&node);
    }

    pub fn has(&self, node: u64) -> bool {
        self.lock().contains_key(&node)
    }

    /// Every change is one call, so a holder that panicked left a whole map.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Met>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_is_told_at_once_and_then_once_a_minute() {
        let strangers = Strangers::default();
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        assert_eq!(strangers.meet(3, at(0)), Some(1));
        let told = (1..=1_200).filter_map(|tenth| strangers.meet(3, at(tenth * 100)));
        assert_eq!(told.collect::<Vec<_>>(), [600, 600], "in two minutes");
        assert_eq!(strangers.meet(2, at(5)), Some(1), "each for itself");
        assert!(strangers.has(3));
        strangers.forget(3);
        assert!(!strangers.has(3) && strangers.has(2));
    }
}
