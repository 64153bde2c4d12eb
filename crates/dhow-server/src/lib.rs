//! The control plane of Dhow: what one server of a cluster, or the only one, runs besides its own agent.
//!
//! Called by the `dhow` binary, which joins it with an agent. It must never see `dhow-agent`: on a single node
//! the two talk over the same session as across a network.

pub mod api;
pub mod clock;
pub mod gateway;
pub mod net;
pub mod plane;
