//! What the nodes of a static cluster are to run. Each reads it off its own copy of the state; what people ask of a node
//! by hand is added on its desk. A leader tells nodes of an older version, which do not read it off their copy, with a
//! scale request for each service.
//!
//! What such a node has been told is asked of it: whatever differs is sent again, so that a lost message, a restart or a
//! new leader costs a retry and nothing else. A desk refuses what a deposed leader sends late. Nothing here decides what
//! runs where.

mod desk;
mod dispatcher;
mod held;
mod own_work;
mod wanted;

pub use desk::{DeskOptions, ScaleDesk, ScaleRefused};
pub use dispatcher::{Dispatcher, DispatcherOptions, ScaleTarget};
pub use held::{HeldListing, HeldService};
pub use own_work::{OwnWork, OwnWorkOptions};

#[cfg(test)]
mod tests;
