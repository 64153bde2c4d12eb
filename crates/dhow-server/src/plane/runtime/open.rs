//! Opens what a server keeps on disk and makes the state of it.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use dhow_core::state::State;
use tokio::sync::mpsc;

use super::event::{EventRecord, EventRecorder};
use super::event_log::{EventStore, EventStoreError};
use super::limits::REPLAYED_EVENTS_MAX;
use super::options::{RuntimeLog, RuntimeOptions};
use crate::plane::log::copied::{CopiedLog, CopiedLogTask, CopiedOptions};
use crate::plane::log::local::LocalLog;
use crate::plane::log::raft::{OpenedRaftLog, RaftLog, RaftOpenError, RaftOptions};
use crate::plane::log::store::{Recovery, StoreError, StoreOptions};
use crate::plane::log::{Log, LogEvent, RecoverError, Recovered, load_snapshot, recover_with};

/// What was found in a directory.
pub struct OpenedRuntime {
    pub state: State,
    /// With the log and the event log filled in.
    pub options: RuntimeOptions,
    /// What the log's store had to do to be sound.
    pub recovery: Recovery,
}

/// A server of a cluster: what was found, and the log's other side, for members, hand-over and the other servers.
pub struct OpenedRaft {
    pub runtime: OpenedRuntime,
    pub log: RaftLog,
}

/// A peer of a static cluster: what was found, and the log's other sides.
pub struct OpenedCopied {
    pub runtime: OpenedRuntime,
    pub log: CopiedLog,
    pub task: CopiedLogTask,
}

/// Why a server's state could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the log cannot be opened")]
    Log(#[source] StoreError),
    #[error("the log of the cluster cannot be opened")]
    Raft(#[source] RaftOpenError),
    #[error("the work was cut off")]
    CutOff,
    #[error("the state cannot be made from the log")]
    Recover(#[source] RecoverError),
    #[error("the event log cannot be opened")]
    Events(#[source] EventStoreError),
}

/// Opens `log` and `events` below a data directory. Blocks.
pub fn open_local(data_dir: &Path, store: StoreOptions) -> Result<OpenedRuntime, OpenError> {
    let mut opened = LocalLog::open(&data_dir.join("log"), store).map_err(OpenError::Log)?;
    let replayed = replay(&opened.log)?;
    opened.lead_above(replayed.recovered.state.term.0);
    open_events(
        data_dir,
        Arc::new(opened.log),
        opened.events,
        opened.recovery,
        replayed,
    )
}

/// Opens the log of a static peer and `events` below a data directory. Blocks.
pub fn open_copied(data_dir: &Path, options: CopiedOptions) -> Result<OpenedCopied, OpenError> {
    let opened = CopiedLog::open(options).map_err(OpenError::Log)?;
    let replayed = replay(&opened.log)?;
    opened.log.lead_above(replayed.recovered.state.term.0);
    let log = Arc::new(opened.log.clone());
    Ok(OpenedCopied {
        runtime: open_events(data_dir, log, opened.events, opened.recovery, replayed)?,
        log: opened.log,
        task: opened.task,
    })
}

/// The state of a log all of which counts, and the newest of what happened after its snapshot, for an event log that may
/// have missed the end.
struct Replayed {
    recovered: Recovered,
    events: Vec<Arc<EventRecord>>,
}

fn replay(log: &dyn Log) -> Result<Replayed, OpenError> {
    let mut events = VecDeque::new();
    let mut recorder = EventRecorder::default();
    let recovered = recover_with(log, |state, entry| {
        // A refusal is part of the history: it moved the revision and the time.
        let _ = recorder.apply(state, entry, None, &mut ());
        events.extend(recorder.records.drain(..));
        while events.len() > REPLAYED_EVENTS_MAX {
            events.pop_front();
        }
    });
    Ok(Replayed {
        recovered: recovered.map_err(OpenError::Recover)?,
        events: events.into(),
    })
}

/// Opens the event log beside a log that was replayed. Blocks.
fn open_events(
    data_dir: &Path,
    log: Arc<dyn Log>,
    events: mpsc::Receiver<LogEvent>,
    recovery: Recovery,
    Replayed {
        recovered,
        events: replayed_events,
    }: Replayed,
) -> Result<OpenedRuntime, OpenError> {
    let event_store = EventStore::open(&data_dir.join("events")).map_err(OpenError::Events)?;
    let log = RuntimeLog {
        log,
        events,
        applied: recovered.applied,
        since_snapshot: recovered.replayed,
    };
    Ok(OpenedRuntime {
        state: recovered.state,
        options: RuntimeOptions {
            log: Some(log),
            event_store: Some(event_store),
            replayed_events,
            ..RuntimeOptions::default()
        },
        recovery,
    })
}

/// Opens the log of a cluster and `events` below a data directory. The state is the one of the newest snapshot; what
/// follows it in the log is applied once this server knows that it is committed.
pub async fn open_raft(data_dir: &Path, options: RaftOptions) -> Result<OpenedRaft, OpenError> {
    let OpenedRaftLog {
        log,
        events,
        recovery,
        applied,
    } = RaftLog::open(options).await.map_err(OpenError::Raft)?;
    let (events_dir, reader) = (data_dir.join("events"), log.clone());
    let read = tokio::task::spawn_blocking(move || {
        let found = load_snapshot(&reader).map_err(OpenError::Recover)?;
        let event_store = EventStore::open(&events_dir).map_err(OpenError::Events)?;
        Ok((found.unwrap_or_default(), event_store))
    });
    let (found, event_store) = match read.await.unwrap_or(Err(OpenError::CutOff)) {
        Ok(read) => read,
        Err(error) => {
            log.shutdown().await;
            return Err(error);
        }
    };
    let runtime_log = RuntimeLog {
        log: Arc::new(log.clone()),
        events,
        applied,
        since_snapshot: 0,
    };
    let runtime = OpenedRuntime {
        state: found.state,
        options: RuntimeOptions {
            log: Some(runtime_log),
            event_store: Some(event_store),
            ..RuntimeOptions::default()
        },
        recovery,
    };
    Ok(OpenedRaft { runtime, log })
}
