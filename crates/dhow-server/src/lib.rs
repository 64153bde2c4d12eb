//! The control plane of Dhow: what one server of a cluster, or the only one, runs besides its own agent.
//!
//! Called by the `dhow` binary, which joins it with an agent. It must never see `dhow-agent`: the binary gives the
//! agent a session, over gRPC or, on a single node, by calls inside the process.

pub mod api;
pub mod clock;
pub mod gateway;
pub mod net;
pub mod page;
pub mod plane;
