//! Who is alive: the leader's leases of all nodes. They live in memory alone; only a lease that has run out becomes a
//! command.
//!
//! The node gateway renews and hands in evidence; the daemon starts the keeper's task beside the runtime. Without a
//! keeper, as on a single node, nobody is ever given up. It must never write to the log for a heartbeat, never read
//! a clock but the one passed in, and never give up the node that it runs on.

mod contact;
mod keeper;
mod losing;
mod servers;

pub use contact::PeerContact;
pub use keeper::{LeaseKeeper, LeaseOptions};

#[cfg(test)]
pub(crate) mod tests;
