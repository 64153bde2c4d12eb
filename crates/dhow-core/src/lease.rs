//! Liveness as pure code: how often a node reports, how long its lease lives, and which leases have run out.
//!
//! Called by the leader's gateway, which keeps leases in memory, and by workers, which ask when to
//! report next. Times come in as parameters; what the leader acts on is monotonic, never
//! on wall time. It must never expire a node because a clock ran backwards, and it never decides what happens
//! to the replicas of an expired node.

mod adaptive_ttl;
mod worker_lease;
mod worker_profile;

pub use adaptive_ttl::AdaptiveTtlConfig;
pub use worker_lease::WorkerLease;
pub use worker_profile::WorkerProfile;
