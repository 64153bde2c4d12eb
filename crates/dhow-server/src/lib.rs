//! The control plane of Dhow: what one server of a cluster, or the only one, runs besides its own agent.
//!
//! Called by the `dhow` binary, which joins it with an agent. It must never see `dhow-agent`: on a single node
//! the two talk over the same session as across a network.

pub mod api;
pub mod clock;
pub mod cluster;
pub mod cron;
pub mod feature_level;
pub mod gateway;
pub mod identity;
pub mod keys;
pub mod leases;
mod lobby;
pub mod log;
pub mod node_door;
pub mod peer_http;
pub mod peers;
pub mod refused_log;
pub mod runtime;
pub mod scale;
pub mod secrets;
pub mod services;
pub mod stabilization;
pub mod static_peers;
pub mod storage;
pub mod tcp;
