//! Opens what a single server keeps on disk and makes the state of it. Blocks.

use std::path::Path;
use std::sync::Arc;

use dhow_core::state::State;

use super::error::RecoverError;
use super::event_log::{EventStore, EventStoreError};
use super::options::{RuntimeLog, RuntimeOptions};
use super::recovery::{load_snapshot, recover};
use crate::log::local::LocalLog;
use crate::log::raft::{RaftLog, RaftOpenError, RaftOptions};
use crate::log::store::{Recovery, StoreError, StoreOptions};

/// What was found in a directory.
pub struct OpenedRuntime {
    pub state: State,
    /// With the log and the event log filled in.
    pub options: RuntimeOptions,
    /// What the log's store had to do to be sound.
    pub recovery: Recovery,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the log cannot be opened")]
    Log(#[source] StoreError),
    #[error("the cluster's log cannot be opened")]
    Raft(#[source] RaftOpenError),
    #[error("the state cannot be made from the log")]
    Recover(#[source] RecoverError),
    #[error("the event log cannot be opened")]
    Events(#[source] EventStoreError),
}

/// Opens `log` and `events` below a data directory.
pub fn open_local(data_dir: &Path, store: StoreOptions) -> Result<OpenedRuntime, OpenError> {
    let opened = LocalLog::open(&data_dir.join("log"), store).map_err(OpenError::Log)?;
    let recovered = recover(&opened.log).map_err(OpenError::Recover)?;
    let event_store = EventStore::open(&data_dir.join("events")).map_err(OpenError::Events)?;
    let log = RuntimeLog {
        log: Arc::new(opened.log),
        events: opened.events,
        applied: recovered.applied,
        since_snapshot: recovered.replayed,
    };
    Ok(OpenedRuntime {
        state: recovered.state,
        options: RuntimeOptions {
            log: Some(log),
            event_store: Some(event_store),
            replayed_events: recovered.events,
            ..RuntimeOptions::default()
        },
        recovery: opened.recovery,
    })
}

/// Opens a server's part of the cluster's log, and `events` below a data directory. What was committed after the newest
/// snapshot comes through the log's events.
pub async fn open_raft(data_dir: &Path, options: RaftOptions) -> Result<(OpenedRuntime, RaftLog), OpenError> {
    let opened = RaftLog::open(options).await.map_err(OpenError::Raft)?;
    let (log, dir) = (opened.log.clone(), data_dir.to_owned());
    let reading = tokio::task::spawn_blocking(move || {
        let recovered = load_snapshot(&log)
            .map_err(OpenError::Recover)?
            .unwrap_or_default();
        let event_store = EventStore::open(&dir.join("events")).map_err(OpenError::Events)?;
        Ok((recovered, event_store))
    });
    let read = reading
        .await
        .unwrap_or(Err(OpenError::Recover(RecoverError::CutOff)));
    let (recovered, event_store) = read?;
    let log = RuntimeLog {
        log: Arc::new(opened.log.clone()),
        events: opened.events,
        applied: recovered.applied,
        since_snapshot: 0,
    };
    let runtime = OpenedRuntime {
        state: recovered.state,
        options: RuntimeOptions {
            log: Some(log),
            event_store: Some(event_store),
            ..RuntimeOptions::default()
        },
        recovery: opened.recovery,
    };
    Ok((runtime, opened.log))
}
