//! What readers see: the newest applied state, who leads, what the last plan left undone, and the events. A reader
//! holds a consistent value and never makes anybody wait.

use std::sync::Arc;

use dhow_core::ids::{NodeId, Revision};
use dhow_core::plan::PlanReport;
use dhow_core::state::State;
use tokio::sync::watch;

use super::event_hub::EventHub;
use super::event_log::EventReader;
use super::wakeups::NodeWakeups;
use crate::log::Leadership;

/// A reader's handle; cheap to clone.
#[derive(Clone, Debug)]
pub struct RuntimeView {
    state: watch::Receiver<Arc<State>>,
    leadership: watch::Receiver<Leadership>,
    report: watch::Receiver<Arc<PlanReport>>,
    wakeups: NodeWakeups,
    events: EventHub,
    event_reader: Option<EventReader>,
}

/// The reducer's end.
#[derive(Debug)]
pub(super) struct Publisher {
    state: watch::Sender<Arc<State>>,
    leadership: watch::Sender<Leadership>,
    report: watch::Sender<Arc<PlanReport>>,
}

impl Publisher {
    pub fn new(state: &State) -> Self {
        let leadership = Leadership {
            term: 0,
            leader: None,
            is_here: false,
        };
        Self {
            state: watch::Sender::new(Arc::new(state.clone())),
            leadership: watch::Sender::new(leadership),
            report: watch::Sender::new(Arc::default()),
        }
    }

    pub fn view(
        &self,
        wakeups: NodeWakeups,
        events: EventHub,
        event_reader: Option<EventReader>,
    ) -> RuntimeView {
        RuntimeView {
            state: self.state.subscribe(),
            leadership: self.leadership.subscribe(),
            report: self.report.subscribe(),
            wakeups,
            events,
            event_reader,
        }
    }

    pub fn publish(&self, state: &State) {
        self.state.send_replace(Arc::new(state.clone()));
    }

    pub fn state(&self) -> Arc<State> {
        self.state.borrow().clone()
    }

    pub fn lead(&self, leadership: Leadership) {
        self.leadership.send_replace(leadership);
    }

    pub fn report(&self, report: PlanReport) {
        self.report.send_replace(Arc::new(report));
    }
}

impl RuntimeView {
    /// The newest applied state.
    pub fn state(&self) -> Arc<State> {
        self.state.borrow().clone()
    }

    /// Follows the state. A reader that is slow sees the newest one and misses those between.
    pub fn states(&self) -> watch::Receiver<Arc<State>> {
        self.state.clone()
    }

    pub fn leadership(&self) -> Leadership {
        *self.leadership.borrow()
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

    /// The newest events.
    pub fn events(&self) -> &EventHub {
        &self.events
    }

    /// The events on disk, where they are kept.
    pub fn event_reader(&self) -> Option<&EventReader> {
        self.event_reader.as_ref()
    }
}
