//! The last lines of replicas that failed and were removed since, so that the cause can still be shown after a
//! revert has cleaned up. In memory, bounded, newest kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::ReplicaName;
use dhow_driver::logs::LogLine;

use crate::limits::LAST_WORDS_REPLICAS_MAX;

type Kept = VecDeque<(ReplicaName, Vec<LogLine>)>;

/// The last lines of failed replicas whose logs are gone; clones share one store. Runners put them in, and the agent's
/// logs give them out.
#[derive(Clone, Debug, Default)]
pub struct LastWords {
    kept: Arc<Mutex<Kept>>,
}

impl LastWords {
    pub fn keep(&self, name: ReplicaName, lines: Vec<LogLine>) {
        if lines.is_empty() {
            return;
        }
        let mut kept = self.kept();
        kept.retain(|(known, _)| *known != name);
        if kept.len() == LAST_WORDS_REPLICAS_MAX {
            kept.pop_front();
        }
        kept.push_back((name, lines));
    }

    /// A replica of this name begins: the words of one before it are not its own.
    pub fn forget(&self, name: &ReplicaName) {
        self.kept().retain(|(known, _)| known != name);
    }

    /// What is remembered of a replica.
    pub fn of(&self, name: &ReplicaName) -> Vec<LogLine> {
        let kept = self.kept();
        let found = kept.iter().find(|(known, _)| known == name);
        found.map(|(_, lines)| lines.clone()).unwrap_or_default()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Pushed and popped whole, so a holder that panicked left a queue that can be read.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
