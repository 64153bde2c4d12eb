//! What workers and servers say to each other: registration, the poll for assignments, status reports.
//!
//! The gRPC gateway, the HTTP API and the agent's session all use these types; their JSON is fixed, byte for
//! byte. Unknown fields are ignored and optional ones may be absent, because peers of other versions are in
//! the field. Names stay plain text here, so that reading a message never fails on a name; who uses one turns
//! it into a checked id and gets an error that says what is wrong. Nothing here decides or waits.

mod assigned;
mod event;
mod poll;
mod register;
mod report;

pub use assigned::to_events;
pub use dhow_core::lease::{AdaptiveTtlConfig, WorkerLease, WorkerProfile};
pub use event::{RoleSpecs, WorkerAssignmentEvent};
pub use poll::{WORKER_POLL_WAIT_MAX_SECS, WorkerPollRequest, WorkerPollResponse};
pub use register::{WorkerRegisterRequest, WorkerRegisterResponse};
pub use report::{
    BootstrapRollout, WorkerContainerStatus, WorkerResourceUsage, WorkerStatusAck, WorkerStatusReport,
};

#[cfg(test)]
mod tests;
