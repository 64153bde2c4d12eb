//! The control plane's HTTP API: one file for each noun.
//!
//! The daemon builds an [`Api`], binds listeners and serves it; the command line and others call it. Every error is
//! a problem document; bad input is never a 5xx and never a panic. It changes nothing by itself: writes go through
//! the reducer's inbox, and what only a node has comes through the node door.

mod access;
mod audit;
mod barrier;
mod body;
mod caller;
mod cluster;
mod context;
mod crons;
mod deploy;
mod deployments;
mod disk;
mod events;
mod exec;
mod extract;
mod feed;
mod forward;
mod health;
mod images;
mod internal;
mod limits;
mod logs;
mod metrics;
mod net_check;
mod nodes;
mod notify;
mod openapi;
mod past;
mod plan;
mod problem;
mod progress;
mod rebalance;
mod registries;
mod replicas;
mod rollouts;
mod router;
mod secrets;
mod serve;
mod sources;
mod suspend;
mod tokens;
mod upgrade;
mod volumes;
mod worker_api;
mod worker_ca;
mod worker_tokens;

pub(crate) use access::OfSession;
pub use access::{AUTHOR_HEADER, Access, PRINCIPAL_HEADER, Principal};
pub use context::{Api, WorkerTokenKey};
pub use internal::{StaticRoutes, static_routes};
pub use openapi::document;
pub use router::{Beside, Inside, router, router_with};
pub use serve::{ApiTls, BindError, Bound, Listeners, Tunneled, bind, serve, serve_with, socket_group};
pub use worker_api::{WorkerApi, serve_worker};

#[cfg(test)]
pub(crate) mod tests;
