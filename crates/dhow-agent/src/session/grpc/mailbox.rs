//! Assignments that have come and that the agent has not taken: one at most, because each change of a service makes
//! the one before it old.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::dispatch::{Dispatch, DispatchChange};
use dhow_core::ids::{Revision, ServiceKey, Term};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

#[derive(Debug)]
struct Pending {
    term: Option<Term>,
    cluster: Option<Arc<str>>,
    revision: Revision,
    whole: bool,
    changes: BTreeMap<ServiceKey, DispatchChange>,
}

#[derive(Debug, Default)]
struct Inner {
    /// What the agent has.
    given: Option<Revision>,
    pending: Option<Pending>,
}

/// What the agent finds.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    Dispatch(Dispatch),
    Nothing,
    /// The agent has something else than it was given: the stream has to begin anew from there.
    OtherHistory,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    inner: Mutex<Inner>,
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
    pub fn put(&self, dispatch: Dispatch) {
        let mut inner = self.inner();
        let changes = dispatch.changes.into_iter().map(|change| (key(&change), change));
        match &mut inner.pending {
            Some(pending) if !dispatch.whole => {
                (pending.term, pending.cluster) = (dispatch.term, dispatch.cluster);
                pending.revision = dispatch.revision;
                pending.changes.extend(changes);
            }
            Some(_) | None => {
                inner.pending = Some(Pending {
                    term: dispatch.term,
                    cluster: dispatch.cluster,
                    revision: dispatch.revision,
                    whole: dispatch.whole,
                    changes: changes.collect(),
                });
            }
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
        Found::Dispatch(Dispatch {
            term: pending.term,
            cluster: pending.cluster,
            revision: pending.revision,
            whole: pending.whole,
            changes: pending.changes.into_values().collect(),
        })
    }

    /// Resolves with the next news after this call.
    pub fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Whatever a holder that panicked left, the next stream begins from what was given.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(change: &DispatchChange) -> ServiceKey {
    match change {
        DispatchChange::Set { service, .. } | DispatchChange::Delete { service } => service.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhow_core::ids::{DeploymentName, ServiceName};

    fn delete(service: &str) -> DispatchChange {
        DispatchChange::Delete {
            service: ServiceKey {
                deployment: DeploymentName::new("shop").unwrap(),
                service: ServiceName::new(service).unwrap(),
            },
        }
    }

    fn set(service: &str) -> DispatchChange {
        let DispatchChange::Delete { service } = delete(service) else {
            unreachable!("made above");
        };
        DispatchChange::Set {
            service,
            replicas: Vec::new(),
        }
    }

    fn dispatch(revision: u64, whole: bool, changes: Vec<DispatchChange>) -> Dispatch {
        Dispatch {
            term: Some(Term(revision)),
            cluster: None,
            revision: Revision(revision),
            whole,
            changes,
        }
    }

    #[test]
    fn what_waits_is_merged() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.take(None), Found::Nothing);
        mailbox.put(dispatch(1, true, vec![set("a"), set("b")]));
        mailbox.put(dispatch(2, false, vec![delete("a"), set("c")]));
        let merged = dispatch(2, true, vec![delete("a"), set("b"), set("c")]);
        assert_eq!(mailbox.take(None), Found::Dispatch(merged));
        assert_eq!(mailbox.take(Some(Revision(2))), Found::Nothing);
        mailbox.put(dispatch(3, false, vec![set("d")]));
        mailbox.put(dispatch(4, true, vec![set("e")]));
        let newest = dispatch(4, true, vec![set("e")]);
        assert_eq!(mailbox.take(Some(Revision(2))), Found::Dispatch(newest));
    }

    #[test]
    fn a_new_stream_begins_from_what_was_taken() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.begin(), None);
        mailbox.put(dispatch(1, true, vec![]));
        assert_eq!(mailbox.begin(), None, "nobody has taken it");
        assert_eq!(mailbox.take(None), Found::Nothing);
        mailbox.put(dispatch(5, true, vec![]));
        assert!(matches!(mailbox.take(None), Found::Dispatch(_)));
        assert_eq!(mailbox.begin(), Some(Revision(5)));
    }

    #[test]
    fn an_agent_with_another_history_begins_anew() {
        let mailbox = Mailbox::default();
        mailbox.put(dispatch(5, true, vec![]));
        assert_eq!(mailbox.take(Some(Revision(3))), Found::OtherHistory);
        assert_eq!(mailbox.take(Some(Revision(3))), Found::Nothing);
        assert_eq!(mailbox.begin(), Some(Revision(3)));
    }
}
