//! Who is alive: the leader's leases of all nodes. They live in memory alone; only a lease that has run out becomes a
//! command.
//!
//! The node gateway renews and hands in evidence; the daemon starts their task beside the runtime. On a single
//! node there is nobody to give up. They must never write to the log for a heartbeat, never read a
//! clock but the one passed in, and never give up the node that they are kept on.

mod contact;
mod handle;
mod losing;
mod servers;

pub use contact::PeerContact;
pub use handle::{LeaseOptions, Leases};

#[cfg(test)]
pub(crate) mod tests;
