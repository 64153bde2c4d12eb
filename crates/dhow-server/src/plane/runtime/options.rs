//! What a runtime is made with, besides the state and the clock.

use std::sync::Arc;

use dhow_core::plan::{Plan, PlanCache, plan_next};
use dhow_core::state::State;
use dhow_core::time::ClusterTime;
use tokio::sync::mpsc;

use super::event::EventRecord;
use super::event_log::EventStore;
use super::limits::{
    DIRECTORY_QUIET_MS, PLAN_DEBOUNCE_MS, PLAN_TICK_MS, SNAPSHOT_ENTRIES, SNAPSHOT_LOG_BYTES,
};
use super::manifest_poll::ManifestSources;
use crate::plane::log::store::LogPosition;
use crate::plane::log::{Log, LogEvent};
use crate::plane::past::PastOptions;
use crate::plane::storage::Storage;

/// Makes a plan; [`plan_next`] everywhere but in tests.
pub type PlanFn = dyn Fn(&State, &mut PlanCache, ClusterTime) -> Plan + Send + Sync;

/// An open log, and how much of it is in the state.
pub struct RuntimeLog {
    pub log: Arc<dyn Log>,
    pub events: mpsc::Receiver<LogEvent>,
    /// The last entry that the state has.
    pub applied: LogPosition,
    /// Entries since the newest snapshot.
    pub since_snapshot: u64,
}

/// When a snapshot is made: whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotPolicy {
    pub entries: u64,
    pub log_bytes: u64,
}

impl Default for SnapshotPolicy {
    fn default() -> Self {
        Self {
            entries: SNAPSHOT_ENTRIES,
            log_bytes: SNAPSHOT_LOG_BYTES,
        }
    }
}

/// What the daemon and tests start a runtime with.
pub struct RuntimeOptions {
    /// Without one, what is written is gone when the process ends.
    pub log: Option<RuntimeLog>,
    /// Where events are kept; without one they are only shown to those who follow.
    pub event_store: Option<EventStore>,
    /// Events of entries that were replayed before the start.
    pub replayed_events: Vec<Arc<EventRecord>>,
    /// Directories of signed deployment files that the cluster follows.
    pub sources: Arc<ManifestSources>,
    pub planner: Arc<PlanFn>,
    pub plan_debounce_ms: u64,
    pub plan_tick_ms: u64,
    /// How long changes of the directory are gathered before nodes are told.
    pub directory_quiet_ms: u64,
    pub snapshots: SnapshotPolicy,
    /// Whether what is written can be kept.
    pub storage: Storage,
    /// Where the past is kept; it is not where nothing is said, or where there is no log to read it from.
    pub past: Option<PastOptions>,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            log: None,
            event_store: None,
            replayed_events: Vec::new(),
            sources: Arc::default(),
            planner: Arc::new(plan_next),
            plan_debounce_ms: PLAN_DEBOUNCE_MS,
            plan_tick_ms: PLAN_TICK_MS,
            directory_quiet_ms: DIRECTORY_QUIET_MS,
            snapshots: SnapshotPolicy::default(),
            storage: Storage::default(),
            past: None,
        }
    }
}
