//! HTTP between the peers of a static cluster: heartbeats on `/health`, claims of the lead, copies of the log, and what
//! a losing half had written.
//!
//! The daemon makes the network for the log; the API has the routes that take what it sends, and lets members in alone.
//! Nothing here decides who leads or what runs.

mod conflicts;
mod frame;
mod network;

pub(crate) use conflicts::take as take_conflicts;
pub use conflicts::tell_conflicts;
pub(crate) use frame::{Leaving, POSITION, PositionHead, decode as read_copies};
pub use network::{AddrOfPeer, StaticNetwork};
