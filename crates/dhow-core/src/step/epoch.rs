//! The beginning of an epoch of a static cluster. It is no entry of a log: the state that an epoch begins with is copied
//! to every peer as a whole.

use crate::ids::{Revision, Term};
use crate::state::State;
use crate::time::ClusterTime;

/// What the leader of a new epoch has found among the peers that it reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochBegan {
    pub epoch: Term,
    /// The highest that any of them has.
    pub revision: Revision,
    pub time: ClusterTime,
}

/// Begins an epoch above everything that any copy has: so a revision and a time only ever go forward, at every peer.
pub fn begin_epoch(state: &mut State, began: &EpochBegan) {
    state.branch.begin(began.epoch, state.time);
    state.term = state.term.max(began.epoch);
    state.revision = state.revision.max(began.revision).next();
    state.time = state.time.max(began.time);
}
