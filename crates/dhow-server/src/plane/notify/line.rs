//! What one target is told next, and when it is tried again: decided without a task, a clock or a network.

use std::collections::VecDeque;
use std::sync::Arc;

use dhow_core::state::{EventPlace, NotifyTarget};

use super::notice::notice_of;
use super::post::PostError;
use crate::plane::runtime::EventRecord;

/// The first pause after a failure; each further one is twice as long.
const PAUSE_MIN_MS: u64 = 1_000;
const PAUSE_MAX_MS: u64 = 5 * 60 * 1_000;
/// A notice that nobody took for so long is given up, so that the ones after it come at last.
const PATIENCE_MS: u64 = 24 * 60 * 60 * 1_000;
/// The same for one that the other side understands and refuses.
const REFUSALS_MAX: u32 = 5;

/// What became of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Told,
    GivenUp,
    /// It is tried again later.
    Again,
}

/// One target's place in the event log, and the notice that it is to take.
#[derive(Debug, Default)]
pub struct Line {
    pub settings: Option<Arc<NotifyTarget>>,
    /// Everything up to here needs nothing more.
    place: EventPlace,
    /// What is to be told, in order: at most what was looked at in one go.
    waiting: VecDeque<Arc<EventRecord>>,
    is_under_way: bool,
    attempts: u32,
    first_tried_ms: u64,
    not_before_ms: u64,
}

fn place_of(record: &EventRecord) -> EventPlace {
    EventPlace {
        revision: record.revision,
        part: record.part,
    }
}

impl Line {
    pub fn new(place: EventPlace) -> Self {
        Self {
            place,
            ..Self::default()
        }
    }

    pub fn place(&self) -> EventPlace {
        self.place
    }

    /// Whether it has nothing to tell and could have.
    pub fn wants_events(&self, now_ms: u64) -> bool {
        self.waiting.is_empty() && !self.is_under_way && now_ms >= self.not_before_ms
    }

    /// Takes the next events: those that the target wants wait, the others are passed over.
    pub fn look(&mut self, found: Vec<Arc<EventRecord>>, now_ms: u64) {
        let wants = |record: &EventRecord| {
            let on = self.settings.as_ref().map(|target| &target.settings.on);
            notice_of(&record.event).is_some_and(|notice| on.is_some_and(|on| on.contains(&notice)))
        };
        let last = found.last().map(|record| place_of(record));
        let wanted: VecDeque<_> = found.into_iter().filter(|record| wants(record)).collect();
        if let (None, Some(last)) = (wanted.front(), last) {
            self.place = self.place.max(last);
        }
        self.waiting = wanted;
        (self.attempts, self.first_tried_ms, self.not_before_ms) = (0, now_ms, now_ms);
    }

    /// What is to be sent now.
    pub fn start(&mut self, now_ms: u64) -> Option<Arc<EventRecord>> {
        if self.is_under_way || now_ms < self.not_before_ms {
            return None;
        }
        let next = self.waiting.front()?;
        self.is_under_way = true;
        Some(Arc::clone(next))
    }

    /// The notice that was under way has ended.
    pub fn ended(&mut self, result: &Result<(), PostError>, now_ms: u64) -> Next {
        self.is_under_way = false;
        let next = match result {
            Ok(()) => Next::Told,
            Err(error) => {
                self.attempts = self.attempts.saturating_add(1);
                let is_refused = error.refuses_content() && self.attempts >= REFUSALS_MAX;
                let waited_ms = now_ms.saturating_sub(self.first_tried_ms);
                match is_refused || waited_ms >= PATIENCE_MS {
                    true => Next::GivenUp,
                    false => Next::Again,
                }
            }
        };
        match next {
            Next::Again => {
                let doubled = PAUSE_MIN_MS.saturating_mul(1 << (self.attempts - 1).min(20));
                self.not_before_ms = now_ms.saturating_add(doubled.min(PAUSE_MAX_MS));
            }
            Next::Told | Next::GivenUp => {
                if let Some(done) = self.waiting.pop_front() {
                    self.place = self.place.max(place_of(&done));
                }
                (self.attempts, self.first_tried_ms, self.not_before_ms) = (0, now_ms, now_ms);
            }
        }
        next
    }
}
