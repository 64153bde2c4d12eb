//! What the log says of nodes and strangers that are refused: who it was, what it wanted and why it does not get it. Each
//! reason once a minute for each of them, so that nobody fills the log.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::frame::Why;
use crate::proxy::note;

/// Before the same is said again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Nodes and addresses with a reason each that are remembered: what finds no room is not said until there is some.
const REMEMBERED_MAX: usize = 256;

/// Who is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusee {
    Node(u64),
    /// Somebody who has not proved to be a node.
    Stranger(IpAddr),
}

impl fmt::Display for Refusee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Stranger(address) => write!(f, "somebody at {address}"),
        }
    }
}

/// Why it is refused, as far as the log tells reasons apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It shows no certificate of a node that is believed.
    Certificate,
    /// Its node belongs to the cluster no more.
    Removed,
    /// What it sent is no frame, or none that may stand there.
    Nonsense,
    /// One stream.
    Stream(Why),
}

/// What was said lately.
#[derive(Default)]
pub struct Refusals {
    said: Mutex<HashMap<(Refusee, Cause), Said>>,
}

struct Said {
    at: Instant,
    #[cfg(test)]
    words: String,
}

impl Refusals {
    /// Puts it into the log, unless the same was said lately.
    pub fn say(&self, who: Refusee, cause: Cause, words: impl FnOnce() -> String) {
        let now = Instant::now();
        let mut said = self.lock();
        if said.len() >= REMEMBERED_MAX {
            said.retain(|_, said| now.saturating_duration_since(said.at) < AGAIN_AFTER);
        }
        let known = said.get(&(who, cause));
        let is_fresh = known.is_some_and(|said| now.saturating_duration_since(said.at) < AGAIN_AFTER);
        if is_fresh || (known.is_none() && said.len() >= REMEMBERED_MAX) {
            return;
        }
        let words = format!("{who} is refused: {}", words());
        note(&words);
        let said_now = Said {
            at: now,
            #[cfg(test)]
            words,
        };
        said.insert((who, cause), said_now);
    }

    #[cfg(test)]
    pub fn said(&self) -> Vec<String> {
        let said = self.lock();
        let mut words: Vec<_> = said.values().map(|said| said.words.clone()).collect();
        words.sort();
        words
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Refusee, Cause), Said>> {
        // Nothing that runs under the lock leaves the map half changed.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_fills_the_log() {
        let refusals = Refusals::default();
        let stranger = |last: u16| {
            let [high, low] = last.to_be_bytes();
            Refusee::Stranger([10, 0, high, low].into())
        };
        for last in 0..2 * REMEMBERED_MAX {
            let who = stranger(u16::try_from(last).unwrap());
            refusals.say(who, Cause::Certificate, || "once".into());
            refusals.say(who, Cause::Certificate, || "twice".into());
        }
        let said = refusals.said();
        assert_eq!(said.len(), REMEMBERED_MAX);
        assert!(said.iter().all(|words| words.ends_with("is refused: once")));
    }
}
