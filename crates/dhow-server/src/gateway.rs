//! The nodes' door: the gRPC service with which every node of a cluster has its session.
//!
//! Served on the API's port for the servers' own nodes and on a port of its own for workers. Who calls is what its
//! certificate says, put into the request by whoever ended TLS; a number in a message is never believed. Every server of
//! a raft cluster takes sessions and reads their assignments off its own state; what is to be decided or written it
//! passes on to the leader, which alone keeps leases and hands reports to the reducer's inbox. It must never change the
//! state by itself, queue without a bound, or hold a secret for longer than an answer.

mod admit;
mod caller;
mod carrier;
mod coarse_timer;
mod files;
mod given;
mod heard;
mod holder;
mod holders;
mod leader_door;
pub mod limits;
mod node_gateway;
mod options;
mod rates;
mod reach;
mod secrets;
mod serve;
mod session_stream;
mod sessions;
mod silence;
mod status;
mod tickets;
mod told_directory;
mod tunnels;
pub(crate) mod verdict;
mod worker_port;
mod workers;

pub use heard::{HeardStream, LastHeard};
pub use leader_door::{GrpcLeaderDoor, LeaderDoor};
pub use node_gateway::{NodeGateway, holder_routes, routes};
pub use options::{GatewayOptions, ServerIds};
pub use reach::ReachWorker;
pub use serve::{Accepted, serve, serve_connection};
pub use tickets::{GivenTicket, TicketIssuer};
pub use tunnels::tunnel_routes;
pub use worker_port::{WorkerPort, WorkerPortError};
pub use workers::{
    CertificateError, ExpiredIdentity, InternalTokens, WORKER_BODY_BYTES_MAX, WorkerCertificates,
    WorkerRoutes, WorkerTier, worker_poll_routes, worker_routes,
};

#[cfg(test)]
mod tests;
