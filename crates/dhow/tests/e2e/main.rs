//! End to end: the real binary as daemon and as command line, real programs, real signals. Each test has a data
//! directory, ports and processes of its own and leaves none of them.
//!
//! `DHOW_TEST_LONG=1` makes the rounds long; `DHOW_TEST_SEED=N` repeats what a run with that seed did.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

mod acme;
mod at_terminal;
mod chaos;
mod compose;
mod copies;
mod failures;
mod faults;
mod files;
mod fuzz;
mod git_source;
#[path = "../../../dhow-server/tests/raft/history.rs"]
mod history;
mod ingress;
mod inside;
mod installed;
mod jobs;
mod listings;
mod load;
mod members;
mod name_clients;
mod names;
mod network;
mod nothing_fails;
mod notify;
mod older_data;
mod page;
mod past;
mod placement;
mod raft;
mod remote;
mod rollouts;
mod scaling;
mod sources;
mod static_mode;
mod support;
mod survival;
mod up;
mod verbs;
mod volumes;
mod web;
mod worker_certificates;
mod worker_doors;
mod worker_ids;
mod worker_tier;
