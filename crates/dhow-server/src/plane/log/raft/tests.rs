//! The parts of the raft log, each by itself; the whole is tested from outside.

mod forms;
mod pending;
mod suite;

pub(super) use suite::NoTransport;
