//! Liveness as pure code: how often a node reports, how long its lease lives, and which leases have run out.
//!
//! Called by the leader, which keeps one [`SessionTable`] in memory, by every server that holds sessions, with its
//! [`HeldSessions`], and by agents, which ask when to report next. Times come in as parameters: the tables run on their
//! caller's monotonic milliseconds and never on wall time. It must never expire a node because a clock ran backwards,
//! and it never decides what happens to the replicas of an expired node.

mod adaptive_ttl;
mod alarm;
mod held_sessions;
mod holder_beat;
mod outbox;
mod report_delay;
mod server_choice;
mod session_table;
mod table;
#[cfg(test)]
mod testing;
mod valve;
mod wheel;
mod worker_lease;
mod worker_profile;

pub use adaptive_ttl::AdaptiveTtlConfig;
pub use alarm::LeaseAlarm;
pub use held_sessions::{Freshness, HeldSessions, HolderSight, MOVE_AFTER_MS, Move};
pub use holder_beat::{Echo, FreshServer, HolderBeat, HolderBeatAnswer, LastSign, SessionId};
pub use outbox::{LEADER_ANSWER_MAX_MS, Outbox, OutboxFull, OutboxKind, Parcel, TOGETHER_MAX};
pub use report_delay::report_delay_ms;
pub use server_choice::{best_server, server_weight};
pub use session_table::{ORPHAN_MS, SessionTable, SessionsTicked};
pub use table::{LeaseTable, Renewal, Ticked};
pub use worker_lease::WorkerLease;
pub use worker_profile::WorkerProfile;
