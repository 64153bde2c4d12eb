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
    /// A stream begins: what has not been taken comes again. Gives what the agent has.
    pub fn begin(&self) -> Option<Revision> {
        let mut inner = self.inner();
        inner.pending = None;
        inner.given
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
        assert_eq!(mailbox.begin(), None);
        mailbox.put(told(1, true, vec![]));
        assert_eq!(mailbox.begin(), None, "nobody has taken it");
        assert_eq!(mailbox.take(None), Found::Nothing);
        mailbox.put(told(5, true, vec![]));
        assert!(matches!(mailbox.take(None), Found::News(_)));
        assert_eq!(mailbox.begin(), Some(Revision(5)));
    }

    #[test]
    fn an_agent_with_another_history_begins_anew() {
        let mailbox = Mailbox::default();
        mailbox.put(told(5, true, vec![]));
        assert_eq!(mailbox.take(Some(Revision(3))), Found::OtherHistory);
        assert_eq!(mailbox.take(Some(Revision(3))), Found::Nothing);
        assert_eq!(mailbox.begin(), Some(Revision(3)));
    }
}
