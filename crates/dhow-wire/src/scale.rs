//! The scaling of one service on one node: what a leader sends, and what a node answers about its replicas.
//!
//! Static clusters send these over the API's internal routes; assignments travel inside worker events too.
//! The receiver asks [`InternalScaleRequest::effective_assignments`] and never counts by itself.

mod assignment;
mod node_state;
mod request;
pub(crate) mod specs_by_generation;

pub use assignment::ScaleAssignment;
pub use node_state::{ClusterContainerSummary, NodeServiceState};
pub use request::{InternalScaleRequest, REPLICAS_PER_REQUEST_MAX, ScaleError};

#[cfg(test)]
mod tests;
