//! Nodes and servers over loopback: real agents on hosts that run nothing, real sessions, gateways, leases and
//! reducers. What the servers share is a log in memory whose leader the test chooses; their time stands still until
//! the test moves it, so that no lease ends by itself.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod cluster;
mod failover;
mod holders;
mod loss;
mod moves;
mod near_door;
mod node;
mod relay;
mod sessions;
mod shared_log;
