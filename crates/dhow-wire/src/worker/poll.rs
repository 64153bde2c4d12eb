//! The long poll for assignments.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::WorkerAssignmentEvent;

/// The longest that a server keeps a poll waiting, whatever the request says: below the idle time-outs of
/// common proxies, and short enough that a worker notices a dead server.
pub const WORKER_POLL_WAIT_MAX_SECS: u32 = 60;

/// The body with which a worker waits for its assignment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerPollRequest {
    pub node_id: u64,
    /// The newest revision that the worker has recorded; 0 asks for everything.
    #[serde(default)]
    pub last_revision: u64,
    #[serde(default = "WorkerPollRequest::default_max_wait_secs")]
    pub max_wait_secs: u32,
}

impl WorkerPollRequest {
    /// A poll from a revision on, with the default wait.
    pub fn new(node_id: u64, last_revision: u64) -> Self {
        Self {
            node_id,
            last_revision,
            max_wait_secs: Self::default_max_wait_secs(),
        }
    }

    fn default_max_wait_secs() -> u32 {
        30
    }

    /// How long the server waits for something to say.
    pub fn wait_secs(&self) -> u32 {
        self.max_wait_secs.min(WORKER_POLL_WAIT_MAX_SECS)
    }
}

/// The events above the revision asked for, ascending; none after a time-out. The worker records `revision`
/// either way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerPollResponse {
    pub revision: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<WorkerAssignmentEvent>,
    /// The events are everything that the worker is to run: services that they do not name are to go.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The term of the leader that answers. A worker that has seen a higher one does not act on what a lower one says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
}

impl WorkerPollResponse {
    /// The answer of a server at `revision` to a worker that has everything up to `last_revision`. Events of
    /// one revision keep their order. The answer's revision is never below that of an event in it.
    pub fn above(last_revision: u64, revision: u64, mut events: Vec<WorkerAssignmentEvent>) -> Self {
        events.retain(|event| event.revision() > last_revision);
        events.sort_by_key(WorkerAssignmentEvent::revision);
        let newest = events.last().map_or(revision, WorkerAssignmentEvent::revision);
        Self {
            revision: revision.max(newest),
            events,
            whole: false,
            term: None,
        }
    }

    /// Everything that the worker is to run, whatever it had: it records the revision, also where that is below its own.
    pub fn whole(revision: u64, mut events: Vec<WorkerAssignmentEvent>) -> Self {
        events.sort_by_key(WorkerAssignmentEvent::revision);
        let newest = events.last().map_or(revision, WorkerAssignmentEvent::revision);
        let first = events.iter_mut().find_map(|event| match event {
            WorkerAssignmentEvent::Set { whole, .. } => Some(whole),
            WorkerAssignmentEvent::Delete { .. } | WorkerAssignmentEvent::Drain { .. } => None,
        });
        if let Some(whole) = first {
            *whole = true;
        }
        Self {
            revision: revision.max(newest),
            events,
            whole: true,
            term: None,
        }
    }

    /// The events in the order in which a worker applies them, without those it already has: a careless
    /// server costs nothing.
    pub fn into_events_above(self, last_revision: u64) -> Vec<WorkerAssignmentEvent> {
        if self.whole {
            return self.events;
        }
        Self::above(last_revision, self.revision, self.events).events
    }
}
