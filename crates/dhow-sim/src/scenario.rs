//! Scenarios: text files that tell what happens to a cluster and what a user sees of it. One file is one
//! story; `scenarios/README.md` says how to read and write them. The test `scenarios` runs them all against the
//! lab, where `step`, the planner and the replica machine are the real ones; nothing here decides anything.

mod action;
mod assignments;
mod behaviour;
mod error;
mod file;
mod node_shape;
mod parse;
mod runner;
mod script;

pub use error::BadScript;
pub use runner::{Ran, run};
pub use script::Script;
