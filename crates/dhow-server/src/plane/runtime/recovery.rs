//! From the log to the state: the newest snapshot, and what was committed after it. Blocks.

use std::collections::VecDeque;
use std::sync::Arc;

use dhow_core::state::State;
use dhow_core::step::step;
use dhow_wire::log_form::{decode_entry, decode_snapshot};

use super::error::RecoverError;
use super::event::{EventRecord, EventRecorder};
use super::limits::{REPLAY_READ_BYTES, REPLAYED_EVENTS_MAX};
use crate::plane::log::Log;
use crate::plane::log::raft::KeptLog;
use crate::plane::log::store::LogPosition;

/// A state made from a log.
#[derive(Debug, Default)]
pub struct Recovered {
    pub state: State,
    /// The last entry that is in it.
    pub applied: LogPosition,
    /// Entries that were applied after the snapshot.
    pub replayed: u64,
    /// What happened in them, the newest of it, for an event log that may have missed the end.
    pub events: Vec<Arc<EventRecord>>,
}

/// Makes the state that was there when the last committed entry had been applied.
pub fn recover(log: &dyn Log) -> Result<Recovered, RecoverError> {
    let mut recovered = load_snapshot(log)?.unwrap_or_default();
    let mut events = VecDeque::new();
    let mut recorder = EventRecorder::default();
    loop {
        let entries = log.read(recovered.applied.index.saturating_add(1), REPLAY_READ_BYTES)?;
        if entries.is_empty() {
            break;
        }
        for stored in entries {
            let entry = decode_entry(&stored.payload).map_err(|cause| RecoverError::Entry {
                index: stored.index,
                cause,
            })?;
            // A refusal is part of the history: it moved the revision and the time.
            let _ = recorder.apply(&mut recovered.state, &entry, None);
            events.extend(recorder.records.drain(..));
            while events.len() > REPLAYED_EVENTS_MAX {
                events.pop_front();
            }
            recovered.applied = stored.position();
            recovered.replayed += 1;
        }
    }
    recovered.events = events.into();
    Ok(recovered)
}

/// The same of a raft directory in which no log is open: everything that stands in it counts.
pub fn recover_kept(kept: &KeptLog) -> Result<State, RecoverError> {
    let mut state = match &kept.state {
        Some(bytes) => decode_snapshot(bytes.as_slice()).map_err(|cause| RecoverError::Snapshot {
            index: kept
                .commands
                .first()
                .map_or(0, |first| first.index.saturating_sub(1)),
            cause,
        })?,
        None => State::default(),
    };
    for stored in &kept.commands {
        let entry = decode_entry(&stored.payload).map_err(|cause| RecoverError::Entry {
            index: stored.index,
            cause,
        })?;
        // A refusal is part of the history: it moved the revision and the time.
        let _ = step(&mut state, &entry, &mut ());
    }
    Ok(state)
}

/// The state of the newest snapshot, where there is one.
pub(super) fn load_snapshot(log: &dyn Log) -> Result<Option<Recovered>, RecoverError> {
    let Some(snapshot) = log.newest_snapshot()? else {
        return Ok(None);
    };
    let applied = snapshot.position();
    let state = decode_snapshot(snapshot).map_err(|cause| RecoverError::Snapshot {
        index: applied.index,
        cause,
    })?;
    Ok(Some(Recovered {
        state,
        applied,
        ..Recovered::default()
    }))
}
