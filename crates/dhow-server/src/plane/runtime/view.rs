//! What readers see: the newest applied state, who leads, what the last plan left undone, and the events. A reader
//! holds a consistent value and never makes anybody wait.

use std::sync::{Arc, Weak};

use dhow_core::ids::{NodeId, Revision};
use dhow_core::plan::PlanReport;
use dhow_core::state::State;
use tokio::sync::watch;

use super::directory::Directories;
use super::error::WriteError;
use super::event_hub::EventHub;
use super::event_log::{EventLogSender, EventReader};
use super::manifest_poll::ManifestSources;
use super::observed::Observed;
use super::reducer::told;
use super::wakeups::NodeWakeups;
use crate::plane::log::{Leadership, Log};
use crate::plane::past::{Moment, Past, PastError, When};
use crate::plane::storage::Storage;

/// A reader's handle; cheap to clone.
#[derive(Clone)]
pub struct RuntimeView {
    state: watch::Receiver<Arc<State>>,
    applied_index: watch::Receiver<u64>,
    /// Does not keep the log open.
    log: Weak<dyn Log>,
    leadership: watch::Receiver<Leadership>,
    leaderless_since_ms: watch::Receiver<Option<u64>>,
    report: watch::Receiver<Arc<PlanReport>>,
    wakeups: NodeWakeups,
    events: Events,
    observed: Observed,
    sources: Arc<ManifestSources>,
    storage: Storage,
    directories: Directories,
    past: Option<Past>,
}

/// Where events are read.
#[derive(Clone)]
pub(super) struct Events {
    pub hub: EventHub,
    pub reader: Option<EventReader>,
    pub audit_reader: Option<EventReader>,
    pub log: EventLogSender,
}

impl std::fmt::Debug for RuntimeView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeView").finish_non_exhaustive()
    }
}

/// The reducer's end.
#[derive(Debug)]
pub(super) struct Publisher {
    state: watch::Sender<Arc<State>>,
    applied_index: watch::Sender<u64>,
    leadership: watch::Sender<Leadership>,
    /// Since when nobody leads, by the monotonic clock; none while somebody does.
    leaderless_since_ms: watch::Sender<Option<u64>>,
    report: watch::Sender<Arc<PlanReport>>,
    observed: Observed,
}

impl Publisher {
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    pub fn new(state: &State, applied_index: u64) -> Self {
        let leadership = Leadership {
            term: 0,
            leader: None,
            is_here: false,
        };
        Self {
            state: watch::Sender::new(Arc::new(state.clone())),
            applied_index: watch::Sender::new(applied_index),
            leadership: watch::Sender::new(leadership),
            leaderless_since_ms: watch::Sender::new(Some(0)),
            report: watch::Sender::new(Arc::default()),
            observed: Observed::default(),
        }
    }

    pub fn view(
        &self,
        log: &Arc<dyn Log>,
        wakeups: NodeWakeups,
        events: Events,
        sources: Arc<ManifestSources>,
        storage: Storage,
        directories: Directories,
    ) -> RuntimeView {
        RuntimeView {
            state: self.state.subscribe(),
            applied_index: self.applied_index.subscribe(),
            log: Arc::downgrade(log),
            leadership: self.leadership.subscribe(),
            leaderless_since_ms: self.leaderless_since_ms.subscribe(),
            report: self.report.subscribe(),
            wakeups,
            events,
            observed: self.observed.clone(),
            sources,
            storage,
            directories,
            past: None,
        }
    }

    /// Follows the state.
    pub fn states(&self) -> watch::Receiver<Arc<State>> {
        self.state.subscribe()
    }

    pub fn publish(&self, state: &State) {
        self.state.send_replace(Arc::new(state.clone()));
    }

    /// Says how far the log is in the published state; after the state itself.
    pub fn reached(&self, index: u64) {
        self.applied_index.send_if_modified(|reached| {
            let is_news = *reached != index;
            *reached = index;
            is_news
        });
    }

    pub fn state(&self) -> Arc<State> {
        self.state.borrow().clone()
    }

    pub fn lead(&self, leadership: Leadership, now_ms: u64) {
        self.leaderless_since_ms.send_modify(|since| {
            *since = match leadership.leader {
                Some(_) => None,
                None => since.or(Some(now_ms)),
            };
        });
        self.leadership.send_replace(leadership);
    }

    pub fn report(&self, report: PlanReport) {
        self.report.send_replace(Arc::new(report));
    }
}

impl RuntimeView {
    pub(super) fn with_past(self, past: Option<Past>) -> Self {
        Self { past, ..self }
    }

    /// The past of this server, where it keeps one.
    pub fn past(&self) -> Option<&Past> {
        self.past.as_ref()
    }

    /// The cluster as it was at a moment. What this server has applied by now and the past does not have yet is written
    /// first.
    pub async fn at(&self, past: &Past, when: When, now_unix_ms: i64) -> Result<Arc<Moment>, PastError> {
        let state = self.state();
        let lags = past.index().last().is_none_or(|last| last < state.revision);
        let may_need_more = match when {
            When::Revision(revision) => past.index().last().is_none_or(|last| last < revision),
            When::UnixMs(_) => true,
        };
        if lags && may_need_more {
            let (past, log) = (past.clone(), self.log.clone());
            let work = move || {
                if let Some(log) = log.upgrade() {
                    past.catch_up(log.as_ref(), &state, now_unix_ms);
                }
            };
            tokio::task::spawn_blocking(work)
                .await
                .map_err(|_| PastError::CutOff)?;
        }
        past.at(when).await
    }

    /// Whether what is written can be kept.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The newest applied state.
    pub fn state(&self) -> Arc<State> {
        self.state.borrow().clone()
    }

    /// Follows the state. A reader that is slow sees the newest one and misses those between.
    pub fn states(&self) -> watch::Receiver<Arc<State>> {
        self.state.clone()
    }

    /// How far the log is in the published state.
    pub fn applied_index(&self) -> u64 {
        *self.applied_index.borrow()
    }

    /// The state with everything in it that any server had acknowledged before this was called. Only where this
    /// server leads; it asks the others whether it still does.
    pub async fn latest(&self) -> Result<Arc<State>, WriteError> {
        let log = self.log.upgrade().ok_or(WriteError::ShuttingDown)?;
        let index = log.barrier().await.map_err(|cause| told(cause, false).0)?;
        drop(log);
        self.state_at(index).await
    }

    /// The state once so much of the log is in it.
    pub async fn state_at(&self, index: u64) -> Result<Arc<State>, WriteError> {
        let mut applied = self.applied_index.clone();
        match applied.wait_for(|applied| *applied >= index).await {
            Ok(_) => Ok(self.state()),
            // The reducer has ended.
            Err(_) => Err(WriteError::ShuttingDown),
        }
    }

    pub fn leadership(&self) -> Leadership {
        *self.leadership.borrow()
    }

    /// For how long nobody has led, as far as this server knows.
    pub fn leaderless_ms(&self, now_ms: u64) -> u64 {
        self.leaderless_since_ms
            .borrow()
            .map_or(0, |since| now_ms.saturating_sub(since))
    }

    /// Follows who leads.
    pub fn leaderships(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Why things were not done by the last plan. Only where this server leads.
    pub fn plan_report(&self) -> Arc<PlanReport> {
        self.report.borrow().clone()
    }

    /// Waits for changes of one node's assignment; look at the state after calling this and before waiting.
    pub fn node_changes(&self, node: NodeId) -> watch::Receiver<Revision> {
        self.wakeups.subscribe(node)
    }

    /// What nodes are told of services.
    pub fn directories(&self) -> &Directories {
        &self.directories
    }

    /// What this server has heard of nodes and keeps in memory alone. Only where it leads.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// The newest events.
    pub fn events(&self) -> &EventHub {
        &self.events.hub
    }

    /// Waits until readers of the event log find every event that was sent before this call.
    pub async fn settle_events(&self) {
        self.events.log.settle().await;
    }

    /// The sources of signed deployment files that this server follows.
    pub fn sources(&self) -> &ManifestSources {
        &self.sources
    }

    /// The events on disk, where they are kept.
    pub fn event_reader(&self) -> Option<&EventReader> {
        self.events.reader.as_ref()
    }

    /// The events with an author on disk, where they are kept: further back than all of them.
    pub fn audit_reader(&self) -> Option<&EventReader> {
        self.events.audit_reader.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_counted_since_when_nobody_leads() {
        let publisher = Publisher::new(&State::default(), 0);
        let since = || *publisher.leaderless_since_ms.borrow();
        let lead = |leader, now_ms| {
            let is_here = false;
            publisher.lead(
                Leadership {
                    term: 1,
                    leader,
                    is_here,
                },
                now_ms,
            );
        };
        assert_eq!(since(), Some(0), "from the start on");
        lead(Some(2), 100);
        assert_eq!(since(), None);
        lead(None, 200);
        lead(None, 300);
        assert_eq!(since(), Some(200), "another term without a leader is no leader");
        lead(Some(3), 400);
        assert_eq!(since(), None);
    }
}
