//! Assignments that have come and that the agent has not taken: one at most, because each change of a service makes
//! the one before it old.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dhow_core::assignment::Assignment;
use dhow_core::ids::Revision;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The revision that the agent was last given, and what has come since.
#[derive(Debug, Default)]
struct MailboxState {
    /// What the agent has.
    given: Option<Revision>,
    pending: Option<Assignment>,
    /// Counts how often the agent had something else than it was given.
    histories: u64,
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    /// What the agent has.
    pub last: Option<Revision>,
    history: u64,
}

/// What the agent finds.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    News(Assignment),
    Nothing,
    /// The agent has something else than it was given: the stream has to begin anew from there.
    OtherHistory,
}

/// The place where the link puts the assignments that come, and where the agent takes them. What comes before the agent
/// has looked is joined into one.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    inner: Mutex<MailboxState>,
    news: Notify,
}

impl Mailbox {
    /// Where the next stream begins, while the last one may still go on.
    pub fn beginning(&self) -> Beginning {
        let inner = self.inner();
        Beginning {
            last: inner.given,
            history: inner.histories,
        }
    }

    /// A stream begins, and the one before it has ended: what has not been taken comes again. It is of no use where the
    /// agent turned out to have something else in the meantime.
    pub fn begin(&self, beginning: Beginning) -> bool {
        let mut inner = self.inner();
        inner.pending = None;
        inner.histories == beginning.history
    }

    /// Adds what has come to what waits.
    pub fn put(&self, assignment: Assignment) {
        let mut inner = self.inner();
        match &mut inner.pending {
            Some(pending) => pending.follow(assignment),
            None => inner.pending = Some(assignment),
        }
        drop(inner);
        self.news.notify_waiters();
    }

    /// Takes what waits for an agent that has seen everything up to `last`.
    pub fn take(&self, last: Option<Revision>) -> Found {
        let mut inner = self.inner();
        if inner.given != last {
            inner.given = last;
            inner.pending = None;
            inner.histories += 1;
            return Found::OtherHistory;
        }
        let Some(pending) = inner.pending.take() else {
            return Found::Nothing;
        };
        inner.given = Some(pending.revision);
        Found::News(pending)
    }

    /// Resolves with the next news after this call.
    pub fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    fn inner(&self) -> MutexGuard<'_, MailboxState> {
        // Whatever a holder that panicked left, the next stream begins from what was given.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhow_core::assignment::RoleAssignment;
    use dhow_core::ids::{DeploymentName, Generation, RoleName, ServiceKey, ServiceName, Term};

    type Change = (ServiceKey, Vec<RoleAssignment>);

    fn delete(service: &str) -> Change {
        let service = ServiceKey {
            deployment: DeploymentName::new("shop").unwrap(),
            service: ServiceName::new(service).unwrap(),
        };
        (service, Vec::new())
    }

    fn set(service: &str) -> Change {
        let role = RoleAssignment {
            role: RoleName::fallback(),
            generation: Generation(1),
            indices: vec![0],
            spec: Default::default(),
            next: None,
        };
        (delete(service).0, vec![role])
    }

    fn told(revision: u64, whole: bool, changes: Vec<Change>) -> Assignment {
        Assignment {
            term: Some(Term(revision)),
            whole,
            services: changes.into_iter().collect(),
            ..Assignment::nothing(Revision(revision))
        }
    }

    #[test]
    fn what_waits_is_merged() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.take(None), Found::Nothing);
        mailbox.put(told(1, true, vec![set("a"), set("b")]));
        mailbox.put(told(2, false, vec![delete("a"), set("c")]));
        let merged = told(2, true, vec![set("b"), set("c")]);
        assert_eq!(mailbox.take(None), Found::News(merged));
        assert_eq!(mailbox.take(Some(Revision(2))), Found::Nothing);
        mailbox.put(told(3, false, vec![set("d")]));
        mailbox.put(told(4, true, vec![set("e")]));
        let newest = told(4, true, vec![set("e")]);
        assert_eq!(mailbox.take(Some(Revision(2))), Found::News(newest));
    }

    #[test]
    fn a_new_stream_begins_from_what_was_taken() {
        let mailbox = Mailbox::default();
        let beginning = mailbox.beginning();
        assert_eq!(beginning.last, None);
        mailbox.put(told(1, true, vec![]));
        assert_eq!(mailbox.beginning().last, None, "nobody has taken it");
        assert!(mailbox.begin(beginning));
        assert_eq!(mailbox.take(None), Found::Nothing, "it comes again");
        mailbox.put(told(5, true, vec![]));
        assert!(matches!(mailbox.take(None), Found::News(_)));
        assert_eq!(mailbox.beginning().last, Some(Revision(5)));
    }

    #[test]
    fn what_was_taken_while_a_stream_opened_comes_again_with_it() {
        let mailbox = Mailbox::default();
        mailbox.put(told(1, true, vec![set("a")]));
        let beginning = mailbox.beginning();
        assert!(matches!(mailbox.take(None), Found::News(_)));
        assert!(mailbox.begin(beginning));
        mailbox.put(told(1, true, vec![set("a")]));
        let again = told(1, true, vec![set("a")]);
        assert_eq!(mailbox.take(Some(Revision(1))), Found::News(again));
    }

    #[test]
    fn an_agent_with_another_history_begins_anew() {
        let mailbox = Mailbox::default();
        mailbox.put(told(5, true, vec![]));
        let early = mailbox.beginning();
        assert_eq!(mailbox.take(Some(Revision(3))), Found::OtherHistory);
        assert_eq!(mailbox.take(Some(Revision(3))), Found::Nothing);
        assert_eq!(mailbox.beginning().last, Some(Revision(3)));
        assert!(!mailbox.begin(early), "its stream begins somewhere else");
        assert!(mailbox.begin(mailbox.beginning()));
    }
}
