//! Applies one entry: the one place of the server that calls `step` on the cluster's state. Used by the reducer for
//! what is committed, and before it starts for the replay.

use std::sync::Arc;

use dhow_core::command::{Entry, Outcome, Refused};
use dhow_core::state::State;
use dhow_core::step::step;

use super::event::{Before, EventRecord};

/// Applies an entry and appends what there is to tell of it.
pub(super) fn apply(
    state: &mut State,
    entry: &Entry,
    wall_unix_ms: Option<i64>,
    records: &mut Vec<Arc<EventRecord>>,
) -> Result<Outcome, Refused> {
    let before = Before::of(state, entry);
    let outcome = step(state, entry)?;
    let events = before.events(state, entry, &outcome);
    records.extend((0u32..).zip(events).map(|(part, event)| {
        Arc::new(EventRecord {
            revision: state.revision,
            part,
            time_ms: state.time,
            wall_unix_ms,
            event,
        })
    }));
    Ok(outcome)
}
