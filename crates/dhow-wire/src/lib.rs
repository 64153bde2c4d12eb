//! What Dhow's parts say to each other and what people write: the contract's types, configuration, the
//! deployment file, log forms, tokens, signed sets of manifests.
//!
//! Used by every crate but the core. It translates between bytes and the core's types: it never opens a file
//! or a socket, never reads a clock, and never decides what happens.

pub mod log_form;
pub mod names;
pub mod problem;
pub mod scale;
pub mod stabilization;
pub mod status;
pub mod worker;

pub use names::WireNameError;
pub use problem::{Problem, ProblemCode};
pub use scale::{
    ClusterContainerSummary, InternalScaleRequest, NodeServiceState, ScaleAssignment, ScaleError,
};
pub use stabilization::{ServiceHealthSummary, StabilizationOutcome, StabilizationResult};
pub use status::{
    ClusterModeName, ClusterStatus, DeploymentState, DeploymentStatus, NodeRole, NodeState, NodeStatus,
    ReplicaState, ReplicaStatus,
};
pub use worker::{
    BootstrapRollout, WorkerAssignmentEvent, WorkerContainerStatus, WorkerPollRequest, WorkerPollResponse,
    WorkerProfile, WorkerRegisterRequest, WorkerRegisterResponse, WorkerResourceUsage, WorkerStatusAck,
    WorkerStatusReport,
};
