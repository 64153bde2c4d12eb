//! When to ask again: a server that is busy says so, and a connection that broke before the answer may have been a
//! daemon that restarts. Both are safe, because a write has its key.

use std::time::Duration;

use dhow_wire::{Problem, ProblemCode};

/// Eight waits of at most five seconds: what a full inbox needs to empty, within a minute.
const BUSY_TRIES_MAX: u32 = 8;
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);
/// Where the server does not say how long.
const BUSY_WAIT: Duration = Duration::from_secs(1);
/// 0.1 + 0.2 + 0.4 + 0.8 + 1.6: about three seconds, in which a daemon has started again.
const BREAK_TRIES_MAX: u32 = 5;
const BREAK_WAIT: Duration = Duration::from_millis(100);

/// Whether a request is tried again, and after which pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Again(Duration),
    Final,
}

/// What was tried of one request.
#[derive(Debug, Default)]
pub struct Attempts {
    busy: u32,
    broken: u32,
}

impl Attempts {
    pub fn after_problem(&mut self, problem: &Problem) -> Verdict {
        if problem.known_code() != Some(ProblemCode::Busy) || self.busy == BUSY_TRIES_MAX {
            return Verdict::Final;
        }
        self.busy += 1;
        let asked = problem
            .retry_after_secs
            .map(|secs| Duration::from_secs(secs.into()));
        Verdict::Again(asked.unwrap_or(BUSY_WAIT).min(BUSY_WAIT_MAX))
    }

    /// Nobody there at the first attempt means no daemon; after a broken connection it may be on its way back.
    pub fn after_break(&mut self, error: &reqwest::Error) -> Verdict {
        let is_first = self.broken == 0 && self.busy == 0;
        if error.is_timeout() || (error.is_connect() && is_first) || self.broken == BREAK_TRIES_MAX {
            return Verdict::Final;
        }
        self.broken += 1;
        Verdict::Again(BREAK_WAIT * 2_u32.pow(self.broken - 1))
    }

    /// Whether it has reached a daemon before.
    pub fn was_sent(&self) -> bool {
        self.broken > 0
    }
}
