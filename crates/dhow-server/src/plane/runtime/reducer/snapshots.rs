//! Snapshots of the state, made and taken over beside the reducer's loop.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use dhow_core::ids::NodeId;
use dhow_core::state::State;
use dhow_wire::log_form::{LogFormError, encode_snapshot};

use crate::plane::log::store::{LogPosition, StoreError};
use crate::plane::log::{Log, RecoverError, Recovered, load_snapshot};
use crate::plane::runtime::event::{EventRecord, installed};
use crate::plane::runtime::event_log::EventLogSender;
use crate::plane::runtime::options::SnapshotPolicy;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why a snapshot was not made. The log keeps what it has, so nothing is lost.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error("the snapshot could not be stored")]
    Store(#[from] StoreError),
    #[error("the state could not be written")]
    Form(#[from] LogFormError),
    #[error("the work was cut off")]
    CutOff,
}

/// Makes snapshots, one at a time.
pub(super) struct SnapshotWork {
    policy: Option<SnapshotPolicy>,
    entries: u64,
    log_bytes: u64,
    running: Option<Work<Result<LogPosition, SnapshotError>>>,
}

impl SnapshotWork {
    pub fn new(policy: Option<SnapshotPolicy>, entries: u64) -> Self {
        Self {
            policy,
            entries,
            log_bytes: 0,
            running: None,
        }
    }

    /// Counts an applied entry.
    pub fn applied(&mut self, size_bytes: usize) {
        self.entries += 1;
        self.log_bytes += size_bytes as u64;
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub fn is_due(&self) -> bool {
        self.running.is_none()
            && self
                .policy
                .is_some_and(|policy| self.entries >= policy.entries || self.log_bytes >= policy.log_bytes)
    }

    /// Begins a snapshot. The events of what it covers are made durable first: once the log has forgotten the
    /// entries, nothing could tell them again.
    pub fn start(&mut self, log: Arc<dyn Log>, state: State, at: LogPosition, events: EventLogSender) {
        self.entries = 0;
        self.log_bytes = 0;
        self.running = Some(Box::pin(async move {
            events.flush().await;
            tokio::task::spawn_blocking(move || write(log.as_ref(), &state, at))
                .await
                .unwrap_or(Err(SnapshotError::CutOff))
        }));
    }

    /// Waits for the snapshot that is being made; for ever where none is.
    pub async fn next(&mut self) -> Result<LogPosition, SnapshotError> {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let ended = running.as_mut().await;
        self.running = None;
        ended
    }
}

fn write(log: &dyn Log, state: &State, at: LogPosition) -> Result<LogPosition, SnapshotError> {
    let mut snapshot = log.begin_snapshot(at)?;
    encode_snapshot(state, &mut snapshot)?;
    log.compact(snapshot)?;
    Ok(at)
}

/// A state that came from another server.
pub(super) struct Installed {
    pub recovered: Recovered,
    /// What differs from the state before.
    pub events: Vec<Arc<EventRecord>>,
    /// Nodes that are to do something else than before.
    pub woken: BTreeSet<NodeId>,
}

/// Takes over a snapshot that the log got from another server.
#[derive(Default)]
pub(super) struct InstallWork {
    running: Option<Work<Result<Installed, RecoverError>>>,
}

impl InstallWork {
    /// While a snapshot is taken over nothing is applied: what follows belongs on top of it.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Reads the snapshot, and compares it with the state that it takes the place of.
    pub fn start(&mut self, log: Arc<dyn Log>, before: State, wall_unix_ms: i64) {
        let work = move || {
            let recovered = load_snapshot(log.as_ref())?.ok_or(RecoverError::NoSnapshot)?;
            let (events, woken) = installed(&before, &recovered.state, wall_unix_ms);
            Ok(Installed {
                recovered,
                events,
                woken,
            })
        };
        self.running = Some(Box::pin(async move {
            tokio::task::spawn_blocking(work)
                .await
                .unwrap_or(Err(RecoverError::CutOff))
        }));
    }

    /// Waits for the state of the snapshot; for ever where none is being read.
    pub async fn next(&mut self) -> Result<Installed, RecoverError> {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let ended = running.as_mut().await;
        self.running = None;
        ended
    }
}
