//! The shim: one small process per replica that outlives the daemon, and what the daemon needs to use it.
//!
//! ```text
//!  daemon ──socket──▶ zygote ──fork per request──▶ shim ──fork + exec──▶ workload
//!                     (exec'd once, idle)          reaps, writes logs, records the exit
//! ```
//!
//! The binary execs itself once as the zygote ([`zygote::main`]): single-threaded, no runtime, hardly a heap.
//! It answers each connection with a fork, so all shims share its memory and one costs little more than its
//! stack. A fork supervises a replica for its whole life ([`protocol::ShimSpec`]), runs one command for the
//! daemon ([`protocol::RunSpec`]: exec into a replica), or holds the balancer's sockets ([`socket_store`]). Nothing but the start goes through the
//! zygote: if it dies, shims go on, and the next start makes a new one.
//!
//! The daemon's side is [`ShimClient`] (starts) and [`ReplicaDirs`] (what is on disk, waiting, stopping,
//! removing), used by the process and the container driver alike.

pub mod client;
mod error;
mod exec_session;
pub mod identity;
mod init;
mod launch;
mod privileges;
pub mod protocol;
mod pump;
mod reaper;
pub mod record;
pub mod replica_dirs;
mod run;
mod running;
pub mod socket_store;
mod spawn;
pub(crate) mod stop;
pub mod strays;
mod supervise;
mod terminal;
mod transport;
mod unchecked;
pub mod zygote;

pub use client::{OwnCommand, RunSession, ShimClient, ShimConfig, build_of};
pub use error::ShimError;
pub use exec_session::{ExecStreams, exec_session};
pub(crate) use identity::ProcessId;
pub use replica_dirs::{ReplicaDirs, StartLock};
pub(crate) use spawn::rlimit_resource;
pub use stop::SignalTarget;
pub use terminal::Manners;
pub(crate) use unchecked::{drop_from_bounding_set, set_call_filter, set_capabilities};
