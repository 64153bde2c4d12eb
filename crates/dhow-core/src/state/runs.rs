//! The runs of a schedule that are under way or kept, and for which of its due times one was started.

use std::sync::Arc;

use imbl::Vector;
use serde::{Deserialize, Serialize};

use super::Service;
use crate::ids::{RoleId, Slot};
use crate::time::ClusterTime;

/// One run of a schedule: replicas of its own, at indices of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRun {
    /// Counts from 1.
    pub number: u32,
    /// The moment of the schedule that it is for; none where somebody asked for it.
    pub due_unix_secs: Option<i64>,
    /// The first of its indices, in each role.
    pub base: u32,
    /// How many replicas each role has in it, by role.
    pub counts: Arc<[u32]>,
    pub began: ClusterTime,
    pub end: Option<RunEnd>,
}

/// When a run came to its end, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    pub at: ClusterTime,
    pub outcome: RunOutcome,
}

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// All its replicas have done their work.
    Done,
    /// One of them has not, and is not started again.
    Failed,
    /// It was not done by its deadline.
    Late,
    /// The next run has taken its place.
    Replaced,
    /// Its service was stopped.
    Stopped,
}

impl RunOutcome {
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Late => "late",
            Self::Replaced => "replaced",
            Self::Stopped => "stopped",
        }
    }
}

impl ScheduleRun {
    pub fn is_open(&self) -> bool {
        self.end.is_none()
    }

    pub fn has(&self, slot: Slot) -> bool {
        let count = self.count(slot.role);
        slot.index >= self.base && slot.index - self.base < count
    }

    fn count(&self, role: RoleId) -> u32 {
        self.counts.get(usize::from(role.0)).copied().unwrap_or(0)
    }

    pub fn count_total(&self) -> u32 {
        self.counts
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// How many indices it takes.
    pub fn width(&self) -> u32 {
        self.counts.iter().copied().max().unwrap_or(0)
    }

    /// Its slots in one role, in order.
    pub(super) fn slots_in(&self, role: RoleId) -> impl DoubleEndedIterator<Item = Slot> + use<> {
        let indices = self.base..self.base.saturating_add(self.count(role));
        indices.map(move |index| Slot { role, index })
    }

    /// All its slots, in order.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = Slot> + '_ {
        let roles = 0..self.counts.len();
        roles.flat_map(|place| self.slots_in(RoleId(place as u16)))
    }
}

/// Moments of a schedule that have been dealt with, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueSpan {
    pub from_unix_secs: i64,
    /// Included.
    pub until_unix_secs: i64,
}

/// The due times of a schedule for which a run was started or left out. They are kept as spans, without a due time
/// between two of one span that was not dealt with: a clock that runs on makes one span longer, one that steps back begins
/// another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueTimes {
    /// Ascending and apart.
    spans: Vector<DueSpan>,
}

impl DueTimes {
    /// A clock that is set back more often than this within what is remembered: what lies between its two oldest spans
    /// counts as dealt with. A run too few is better than one twice.
    const SPANS_MAX: usize = 32;

    pub fn has(&self, unix_secs: i64) -> bool {
        let mut spans = self.spans.iter();
        spans.any(|span| (span.from_unix_secs..=span.until_unix_secs).contains(&unix_secs))
    }

    /// The last one that is not after a moment.
    pub fn last_until(&self, unix_secs: i64) -> Option<i64> {
        let begun = self.spans.iter().filter(|span| span.from_unix_secs <= unix_secs);
        begun.last().map(|span| span.until_unix_secs.min(unix_secs))
    }

    /// One is dealt with; `follows` is the one before it in the schedule.
    pub fn settle(&mut self, unix_secs: i64, follows: Option<i64>) {
        let follows = follows.filter(|before| *before < unix_secs && self.has(*before));
        let mut new = DueSpan {
            from_unix_secs: follows.unwrap_or(unix_secs),
            until_unix_secs: unix_secs,
        };
        let mut spans: Vec<DueSpan> = Vec::with_capacity(self.spans.len() + 1);
        for span in &self.spans {
            let meets =
                span.from_unix_secs <= new.until_unix_secs && span.until_unix_secs >= new.from_unix_secs;
            match meets {
                true => {
                    new.from_unix_secs = new.from_unix_secs.min(span.from_unix_secs);
                    new.until_unix_secs = new.until_unix_secs.max(span.until_unix_secs);
                }
                false => spans.push(*span),
            }
        }
        spans.push(new);
        spans.sort_by_key(|span| span.from_unix_secs);
        while spans.len() > Self::SPANS_MAX {
            let oldest = spans.remove(0);
            if let Some(next) = spans.first_mut() {
                next.from_unix_secs = oldest.from_unix_secs;
            }
        }
        self.spans = spans.into();
    }
}

impl Service {
    pub fn open_runs(&self) -> impl DoubleEndedIterator<Item = &Arc<ScheduleRun>> {
        self.runs.iter().filter(|run| run.is_open())
    }

    pub fn run_of(&self, slot: Slot) -> Option<&Arc<ScheduleRun>> {
        self.runs.iter().find(|run| run.has(slot))
    }

    /// Runs that count for how the service does: those under way, and the newest. One that people have stopped says nothing.
    pub fn present_runs(&self) -> impl Iterator<Item = &Arc<ScheduleRun>> {
        let newest = self.runs.last().map(|run| run.number);
        let counts = move |run: &&Arc<ScheduleRun>| {
            let is_stopped = run.end.is_some_and(|end| end.outcome == RunOutcome::Stopped);
            run.is_open() || (Some(run.number) == newest && !is_stopped)
        };
        self.runs.iter().filter(counts)
    }

    /// Whether what the slot has counts for how the service does.
    pub fn is_present(&self, slot: Slot) -> bool {
        self.runs.is_empty() || self.present_runs().any(|run| run.has(slot))
    }

    /// Whether the slot's replica stays as it ended: of a run that is kept, or of a job that was ended by its deadline.
    pub fn keeps(&self, slot: Slot) -> bool {
        if self.removing {
            return false;
        }
        if self.stopped.is_some() {
            return self.keeps_stopped(slot);
        }
        match self.late {
            Some(_) => slot.index < self.count(slot.role),
            None => self.runs.iter().any(|run| !run.is_open() && run.has(slot)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_clock_that_runs_on_makes_one_span() {
        let mut times = DueTimes::default();
        times.settle(60, Some(0));
        for due in 2..1_000 {
            times.settle(due * 60, Some(due * 60 - 60));
        }
        assert_eq!(times.spans.len(), 1);
        assert!(!times.has(0) && times.has(60) && times.has(999 * 60) && !times.has(1_000 * 60));
        // Hours that were jumped over are none that were dealt with.
        times.settle(5_000 * 60, Some(4_999 * 60));
        assert!(!times.has(3_000 * 60) && times.has(5_000 * 60));
        assert_eq!(times.last_until(4_000 * 60), Some(999 * 60));
        assert_eq!(times.last_until(6_000 * 60), Some(5_000 * 60));
        assert_eq!(times.last_until(0), None);
    }

    proptest! {
        /// Whatever the clock does: what was dealt with is never open again, and as long as it is not set back all the
        /// time, nothing else counts as dealt with.
        #[test]
        fn what_was_dealt_with_stays_so(jumps in prop::collection::vec((0..400_i64, 1..40_usize), 1..60)) {
            let (mut times, mut settled) = (DueTimes::default(), BTreeSet::new());
            let backs = jumps.len();
            for (from, count) in jumps {
                for due in (from..).take(count) {
                    times.settle(due * 60, Some(due * 60 - 60));
                    settled.insert(due * 60);
                }
                for due in -1..500 {
                    let known = settled.contains(&(due * 60));
                    prop_assert!(!known || times.has(due * 60), "{due}");
                    prop_assert!(backs > DueTimes::SPANS_MAX || known == times.has(due * 60), "{due}");
                }
                prop_assert!(times.spans.len() <= DueTimes::SPANS_MAX);
            }
        }
    }
}
