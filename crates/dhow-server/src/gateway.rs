//! The nodes' door: the gRPC service with which every node of a cluster has its session.
//!
//! Served on the API's port for the servers' own nodes and on a port of its own for workers. Who calls is what its
//! certificate says, put into the request by whoever ended TLS; a number in a message is never believed. Only the
//! leader takes sessions: others say who leads. It renews leases before anything else, hands reports to the reducer's
//! inbox and reads assignments off the state; it must never change the state by itself, queue without a bound, or
//! hold a secret for longer than an answer.

mod admit;
mod bucket;
mod caller;
mod coarse_timer;
mod heard;
pub mod limits;
mod node_gateway;
mod options;
mod rates;
mod secrets;
mod serve;
mod session_stream;
mod sessions;
mod status;
pub(crate) mod verdict;
mod worker_port;
mod workers;

pub use heard::{HeardStream, LastHeard};
pub use node_gateway::{NodeGateway, routes};
pub use options::{GatewayOptions, ServerIds};
pub use serve::{Accepted, NodeConnection, serve, serve_connection};
pub use worker_port::{WorkerPort, WorkerPortError};
pub use workers::{
    CertificateError, ExpiredIdentity, InternalTokens, WORKER_BODY_BYTES_MAX, WorkerCertificates,
    WorkerRoutes, WorkerTier, worker_routes,
};

#[cfg(test)]
mod tests;
