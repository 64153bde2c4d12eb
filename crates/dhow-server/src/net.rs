//! How a server speaks with others: keys and certificates, who calls, the channel between servers, HTTP between members
//! and the door to what only a node has.
//!
//! Used by the control plane's log, by the gateway and by the API. Nothing here knows of State, leaders or the log.

pub(crate) mod bucket;
pub mod identity;
pub mod keys;
pub(crate) mod lobby;
pub mod node_door;
pub mod peer_http;
pub mod peers;
pub mod refused_log;
pub mod tcp;
pub mod tunnels;
