//! The log of a cluster: consensus over a few servers, on the same store as the single-node log.
//!
//! Called by the reducer through [`Log`], by the daemon, which opens it and hands its [`PeerHandler`] to whatever
//! ends the channel between servers, and by the API for members, hand-over and linearizable reads. This module and
//! its children are the only code that names the consensus library; what stands on disk and travels between servers
//! has forms of its own.
//!
//! What it promises: an entry that was shown as committed is on the disks of a majority and never changes; the log
//! tells of each proposal that it is committed, not taken or unknown, and never wrongly; a node that was cut off costs
//! no election when it comes back; a node that lost its directory is not taken for the member that it was. It must
//! never apply anything: the reducer owns the state.
//!
//! [`Log`]: super::Log
//! [`PeerHandler`]: crate::net::peers::PeerHandler

mod admission;
mod ahead;
mod ask;
mod barrier;
mod blob;
mod compaction;
mod election;
mod engine;
mod entry_form;
mod error;
mod formation;
mod handler;
mod incoming;
mod known_peers;
mod leadership;
pub mod limits;
mod log_impl;
mod log_state;
mod machine;
mod members;
mod network;
mod offline;
mod open;
mod options;
mod pace;
mod pending;
mod proposer;
mod raft_log;
mod send_snapshot;
mod snapshot_data;
mod storage;
mod store_slot;
mod strangers;
mod transfer;
mod types;
mod vote_form;
mod wire;

pub use admission::Admission;
pub use entry_form::FormError;
pub use error::RaftOpenError;
pub use handler::RaftPeerHandler;
pub use known_peers::IdentityError;
pub use members::{Member, MemberError};
pub use offline::{KeptLog, OfflineRaft, SeedTerms, seed};
pub use open::OpenedRaftLog;
pub use options::{RaftOptions, RaftPeerAddrs, RaftTimings};
pub use raft_log::RaftLog;
pub use transfer::TransferError;

#[cfg(test)]
mod tests;
