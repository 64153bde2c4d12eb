//! The raft log, from outside: several of them in one process, over a network that can be cut.
//!
//! `DHOW_TEST_LONG=1` makes the rounds longer; the seed of every random choice is printed.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should stop where it is"
)]

mod cluster;
mod elections;
mod faults;
mod history;
mod linearizable;
mod members;
mod network;
mod node;
mod runtime;
mod snapshots;
mod writes;
