//! The question what to run: one under way at a time.

use std::time::Duration;

use dhow_core::assignment::Assignment;
use dhow_core::ids::Revision;

use super::retry::Retry;
use crate::session::SessionError;

/// Whether the keeper waits for an assignment, and the last one that it has acted on.
#[derive(Default)]
pub(super) struct Poll {
    /// None at first: a node that has just started is told everything.
    last: Option<Revision>,
    retry: Retry,
    is_under_way: bool,
}

impl Poll {
    /// Asks, where that is not under way: after which pause, and for what is newer than what.
    pub fn go_on(&mut self, may_ask: bool) -> Option<(Duration, Option<Revision>)> {
        if self.is_under_way || !may_ask {
            return None;
        }
        self.is_under_way = true;
        Some((self.retry.pause(), self.last))
    }

    pub fn take(&mut self, answer: Result<Assignment, SessionError>) -> Option<Assignment> {
        self.is_under_way = false;
        match answer {
            Ok(order) => Some(order),
            Err(error) => {
                self.retry.failed("the assignment cannot be had", &error);
                None
            }
        }
    }

    /// The keeper has acted on the assignment of this revision.
    pub fn taken(&mut self, revision: Revision) {
        self.retry = Retry::default();
        self.last = Some(revision);
    }

    /// The keeper did not act on the assignment that came: it asks for it again, after a pause.
    pub fn refused(&mut self) {
        self.retry.again();
    }
}
