//! Opens what a single server keeps on disk and makes the state of it. Blocks.

use std::path::Path;
use std::sync::Arc;

use dhow_core::state::State;

use super::error::RecoverError;
use super::event_log::{EventStore, EventStoreError};
use super::options::{RuntimeLog, RuntimeOptions};
use super::recovery::recover;
use crate::log::local::LocalLog;
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
