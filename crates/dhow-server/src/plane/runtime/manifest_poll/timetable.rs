//! When what is elsewhere is looked at next, and what is being looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::Id;

use crate::plane::runtime::limits::{REMOTE_GAP_MS, REMOTE_POLL_MS};

/// Times by the monotonic clock, for each source.
#[derive(Debug, Default)]
pub(super) struct Timetable {
    times: BTreeMap<Arc<str>, Times>,
    under_way: BTreeMap<Id, Arc<str>>,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    began_ms: u64,
    due_ms: u64,
}

impl Timetable {
    /// Forgets sources that are followed no longer.
    pub fn keep(&mut self, is_followed: impl Fn(&Arc<str>) -> bool) {
        self.times.retain(|name, _| is_followed(name));
    }

    /// Somebody says that there is something new, or a suspension is over: it is looked at soon, but not all the time.
    pub fn called(&mut self, name: &str, now_ms: u64) {
        if let Some(times) = self.times.get_mut(name) {
            let soon_ms = times.began_ms.saturating_add(REMOTE_GAP_MS).max(now_ms);
            times.due_ms = times.due_ms.min(soon_ms);
        }
    }

    /// Whether it is time to look at it. One that is new is looked at at once.
    pub fn is_due(&self, name: &Arc<str>, now_ms: u64) -> bool {
        let is_looked_at = self.under_way.values().any(|other| other == name);
        let is_time = self.times.get(name).is_none_or(|times| times.due_ms <= now_ms);
        is_time && !is_looked_at
    }

    pub fn begin(&mut self, name: Arc<str>, task: Id, now_ms: u64) {
        self.under_way.insert(task, name.clone());
        let times = Times {
            began_ms: now_ms,
            due_ms: now_ms.saturating_add(REMOTE_POLL_MS),
        };
        self.times.insert(name, times);
    }

    pub fn end(&mut self, task: Id) {
        self.under_way.remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_source_is_looked_at_once_a_minute_and_soon_after_a_call() {
        let mut table = Timetable::default();
        let name: Arc<str> = "shop".into();
        assert!(table.is_due(&name, 0));
        let task = tokio::spawn(async {}).id();
        table.begin(name.clone(), task, 0);
        table.called("shop", 10);
        table.called("other", 10);
        assert!(!table.is_due(&name, REMOTE_GAP_MS), "it is being looked at");
        table.end(task);
        assert!(
            !table.is_due(&name, REMOTE_GAP_MS - 1),
            "it was looked at just now"
        );
        assert!(table.is_due(&name, REMOTE_GAP_MS));
        table.begin(name.clone(), task, REMOTE_GAP_MS);
        table.end(task);
        assert!(!table.is_due(&name, REMOTE_POLL_MS));
        assert!(table.is_due(&name, REMOTE_GAP_MS + REMOTE_POLL_MS));
        table.keep(|_| false);
        assert!(table.is_due(&name, 0), "it is new");
    }
}
