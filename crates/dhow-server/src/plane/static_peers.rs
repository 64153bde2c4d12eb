//! HTTP between the peers of a static cluster: heartbeats on `/health`, claims of the lead, copies of the log, and what
//! a losing half had written.
//!
//! The daemon makes the network for the log and merges the routes into the API, which lets members in alone. Nothing
//! here decides who leads or what runs.

mod conflicts;
mod frame;
mod network;
mod routes;

pub use conflicts::tell_conflicts;
pub use network::{AddrOfPeer, StaticNetwork};
pub use routes::{StaticRoutes, routes};
