//! How notices fare, for listings and metrics; kept by whoever leads, in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How one target has fared since this server leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetFigures {
    pub sent: u64,
    pub failed_attempts: u64,
    pub given_up: u64,
    pub last_sent_unix_secs: Option<i64>,
    /// Why the last attempt did not succeed; none once one did.
    pub problem: Option<String>,
}

/// Shared by the task that sends and those who ask.
#[derive(Clone, Debug, Default)]
pub struct NotifyBoard(Arc<Mutex<BTreeMap<Arc<str>, TargetFigures>>>);

impl NotifyBoard {
    pub fn of(&self, name: &str) -> TargetFigures {
        self.figures().get(name).cloned().unwrap_or_default()
    }

    pub fn all(&self) -> Vec<(Arc<str>, TargetFigures)> {
        let figures = self.figures();
        figures
            .iter()
            .map(|(name, figures)| (Arc::clone(name), figures.clone()))
            .collect()
    }

    pub(super) fn sent(&self, name: &Arc<str>, now_unix_secs: i64) {
        self.change(name, |figures| {
            figures.sent += 1;
            figures.last_sent_unix_secs = Some(now_unix_secs);
            figures.problem = None;
        });
    }

    pub(super) fn failed(&self, name: &Arc<str>, problem: Option<String>) {
        let before = self.of(name).problem;
        if problem != before {
            tracing::warn!(target = %name, problem, "a notice was not taken; it is tried again");
        }
        self.change(name, |figures| {
            figures.failed_attempts += 1;
            figures.problem = problem;
        });
    }

    pub(super) fn given_up(&self, name: &Arc<str>, problem: Option<String>) {
        tracing::warn!(target = %name, problem, "a notice is given up");
        self.change(name, |figures| {
            figures.given_up += 1;
            figures.problem = problem;
        });
    }

    pub(super) fn keep(&self, is_known: impl Fn(&Arc<str>) -> bool) {
        self.figures().retain(|name, _| is_known(name));
    }

    pub(super) fn clear(&self) {
        self.figures().clear();
    }

    fn change(&self, name: &Arc<str>, change: impl FnOnce(&mut TargetFigures)) {
        change(self.figures().entry(Arc::clone(name)).or_default());
    }

    fn figures(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, TargetFigures>> {
        // Counts are changed one by one, so a holder that panicked left what can be read.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
