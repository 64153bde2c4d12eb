//! The pure core of Dhow: everything that decides. State is a function of a log of commands; this crate
//! holds the types of both, the function, and the planner that proposes the next commands.
//!
//! Called by every other crate but `dhow-disk`. It never does I/O, never spawns, never reads a clock, an environment or
//! a random number, and never iterates a hash map: the same log gives the same state everywhere.

pub mod acme;
pub mod amount;
mod around;
pub mod assignment;
pub mod branches;
pub mod change;
pub mod command;
pub mod directory;
pub mod dry_run;
pub mod ids;
pub mod invariants;
pub mod lease;
mod maps;
pub mod mirror;
pub mod placement;
pub mod plan;
pub mod rebalance;
pub mod registries;
pub mod replica;
pub mod restart;
pub mod rollout;
pub mod scaler;
pub mod spec;
pub mod state;
pub mod step;
pub mod stored;
pub mod time;
pub mod usage;
