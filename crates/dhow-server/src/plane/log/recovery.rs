//! From the log to the state: the newest snapshot, and what was committed after it. Blocks.

use dhow_core::command::Entry;
use dhow_core::state::State;
use dhow_core::step::step;
use dhow_wire::log_form::{LogFormError, decode_entry, decode_snapshot};

use super::Log;
use super::raft::KeptLog;
use super::store::{LogPosition, StoreError};

/// Bytes of the log that a replay reads at a time.
const REPLAY_READ_BYTES: usize = 4 * 1024 * 1024;

/// Why the state could not be made from the log.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error("the log cannot be read")]
    Store(#[from] StoreError),
    #[error("the snapshot at entry {index} cannot be read")]
    Snapshot {
        index: u64,
        #[source]
        cause: LogFormError,
    },
    #[error("entry {index} of the log cannot be read")]
    Entry {
        index: u64,
        #[source]
        cause: LogFormError,
    },
    #[error("the log announced a snapshot that is not there")]
    NoSnapshot,
    #[error("the work was cut off")]
    CutOff,
}

/// A state made from a log.
#[derive(Debug, Default)]
pub struct Recovered {
    pub state: State,
    /// The last entry that is in it.
    pub applied: LogPosition,
    /// Entries that were applied after the snapshot.
    pub replayed: u64,
}

/// Makes the state that was there when the last committed entry had been applied.
pub fn recover(log: &dyn Log) -> Result<Recovered, RecoverError> {
    recover_with(log, |state, entry| {
        // A refusal is part of the history: it moved the revision and the time.
        let _ = step(state, entry, &mut ());
    })
}

/// The same, where `apply` applies each entry that came after the snapshot.
pub fn recover_with(
    log: &dyn Log,
    mut apply: impl FnMut(&mut State, &Entry),
) -> Result<Recovered, RecoverError> {
    let mut recovered = load_snapshot(log)?.unwrap_or_default();
    loop {
        let entries = log.read(recovered.applied.index.saturating_add(1), REPLAY_READ_BYTES)?;
        if entries.is_empty() {
            return Ok(recovered);
        }
        for stored in entries {
            let entry = decode_entry(&stored.payload).map_err(|cause| RecoverError::Entry {
                index: stored.index,
                cause,
            })?;
            apply(&mut recovered.state, &entry);
            recovered.applied = stored.position();
            recovered.replayed += 1;
        }
    }
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
pub fn load_snapshot(log: &dyn Log) -> Result<Option<Recovered>, RecoverError> {
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
