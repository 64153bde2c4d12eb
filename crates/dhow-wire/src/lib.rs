//! What Dhow's parts say to each other and what people write: the contract's types, configuration, the
//! deployment file, log forms, tokens, signed sets of manifests.
//!
//! Used by the agent, the server, the simulation and the binary. It translates between bytes and the core's types: it
//! never opens a file or a socket, never reads a clock, and never decides what happens.

pub mod access_token;
pub mod api;
pub mod backup;
mod byte_stream;
pub mod certificate;
pub mod config;
pub mod deployment;
pub mod document;
pub mod door;
pub mod endpoint_certificate;
pub mod grpc;
mod hex;
pub mod log_form;
pub mod manifest;
pub mod names;
pub mod problem;
pub mod scale;
mod signing;
pub mod stabilization;
pub mod status;
#[cfg(test)]
mod testing;
pub mod ticket;
pub mod tls;
pub mod token;
pub mod worker;

pub use access_token::{AccessToken, MalformedAccessToken};
pub use byte_stream::ByteStream;
pub use config::{
    AcmeConfig, ApiAddr, ClusterMode, ConfigSources, DaemonConfig, LogConfig, LogFormat, LogLevel, MeshAddr,
    MeshSetting, NetworkConfig, NodeResources, RaftPeer, RegistryConfig, ServiceRange, Setting, SourceConfig,
    StaticPeer, WorkerTierRole, load_config, parse_config, source_name_problem,
};
pub use deployment::{
    Client, FileProblem, Sender, parse_deployment, parse_deployment_beside, parse_deployment_under,
    write_deployment,
};
pub use document::{Finding, Findings};
pub use endpoint_certificate::{CertificateProblem, EndpointCertificate};
pub use manifest::{ManifestError, ReceivedSet, VerifiedSet};
pub use names::WireNameError;
pub use problem::{Problem, ProblemCode};
pub use scale::{
    ClusterContainerSummary, InternalScaleRequest, NodeServiceState, ScaleAssignment, ScaleError,
};
pub use stabilization::{ServiceHealthSummary, StabilizationOutcome, StabilizationResult};
pub use status::{
    ClusterMember, ClusterModeName, ClusterStatus, DeploymentSource, DeploymentState, DeploymentStatus,
    DrainWait, NodeAmounts, NodeDrainStatus, NodeFailures, NodeRole, NodeState, NodeStatus, ReplicaStateName,
    ReplicaStatus, ResourceAmount, ServedEndpoint, ServingNode,
};
pub use ticket::{Ticket, TicketError, VerifiedTicket};
pub use token::{TokenClaims, TokenError, VerifiedToken, WorkerBootstrapToken};
pub use worker::{
    AdaptiveTtlConfig, BootstrapRollout, WorkerAssignmentEvent, WorkerContainerStatus, WorkerLease,
    WorkerPollRequest, WorkerPollResponse, WorkerProfile, WorkerRegisterRequest, WorkerRegisterResponse,
    WorkerResourceUsage, WorkerStatusAck, WorkerStatusReport,
};
