//! The log that all servers of a world share: what the leader writes is committed where it has its quorum, and every
//! server applies it in order, each a little later.

use std::sync::Arc;

use dhow_core::command::{Command, Entry, Outcome, Refused};
use dhow_core::ids::{NodeId, Term};
use dhow_core::state::State;
use dhow_core::step::step;
use dhow_core::time::ClusterTime;

/// Committed entries as the states after them, with when each was committed.
pub(super) struct SharedLog {
    states: Vec<(u64, Arc<State>)>,
    pub term: Term,
    /// Whose entries are taken.
    pub leader: Option<NodeId>,
    /// When it was elected.
    pub elected_ms: u64,
}

impl SharedLog {
    pub fn new() -> Self {
        Self {
            states: vec![(0, Arc::default())],
            term: Term(0),
            leader: None,
            elected_ms: 0,
        }
    }

    /// The number of the last entry.
    pub fn last(&self) -> usize {
        self.states.len() - 1
    }

    /// The state after all that is committed.
    pub fn state(&self) -> &Arc<State> {
        &self.states[self.last()].1
    }

    /// The state after this entry.
    pub fn at(&self, index: usize) -> &Arc<State> {
        &self.states[index.min(self.last())].1
    }

    /// How far a server is that has all that was committed by this time.
    pub fn last_by(&self, time_ms: u64) -> usize {
        self.states.partition_point(|(at_ms, _)| *at_ms <= time_ms).max(1) - 1
    }

    /// Commits an entry; gives its number and what `step` made of it.
    pub fn write(&mut self, command: Command, now_ms: u64) -> (usize, Result<Outcome, Refused>) {
        let entry = Entry {
            time: ClusterTime(now_ms),
            term: self.term,
            request: None,
            command,
        };
        let mut state = State::clone(self.state());
        let outcome = step(&mut state, &entry, &mut ());
        self.states.push((now_ms, Arc::new(state)));
        (self.last(), outcome)
    }
}
