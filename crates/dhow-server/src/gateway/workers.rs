//! The worker tier's part of the nodes' door: how a worker joins and keeps its certificate, and the same protocol as
//! JSON for a client that cannot speak gRPC.

mod http;
mod internal_token;
mod join_error;
mod join_key;
mod register;
mod renew;
mod tier;

pub use http::{WORKER_BODY_BYTES_MAX, WorkerRoutes, worker_poll_routes, worker_routes};
pub use internal_token::InternalTokens;
pub use renew::ExpiredIdentity;
pub use tier::{CertificateError, WorkerCertificates, WorkerTier};

#[cfg(test)]
mod tests;
