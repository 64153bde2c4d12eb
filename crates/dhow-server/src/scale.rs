//! Dispatch in a static cluster: the leader tells each node over HTTP what it is to run of a service, and the node's
//! desk makes that the agent's assignment.
//!
//! What a node is to run is read off the state each time; what it has been told is asked of the node: whatever differs
//! is sent again, so that a lost message, a restart or a new leader costs a retry and nothing else. A desk refuses what
//! a deposed leader sends late. Nothing here decides what runs where.

mod desk;
mod dispatcher;
mod held;
mod wanted;

pub use desk::{DeskOptions, ScaleDesk, ScaleRefused};
pub use dispatcher::{Dispatcher, DispatcherOptions, ScaleTarget};
pub use held::{HeldListing, HeldService};

#[cfg(test)]
mod tests;
