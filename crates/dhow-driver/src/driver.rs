//! What a driver is: the dozen calls by which the agent runs replicas, whatever they are.
//!
//! Implemented by `process`, `container` and `fake`, which pass `conformance`, and by `unavailable`, which runs
//! nothing. A driver keeps what it must know on disk, not in memory: a driver opened by a new daemon sees the same
//! replicas, so there is no call to adopt them: `list` what exists, and `wait` for what runs. It never decides
//! anything: no restarts, no health, no order. Calls about different replicas run in parallel; two calls about the same
//! one at a time are the caller's to avoid, and cost it an error at worst.

mod capabilities;
mod connection;
mod error;
mod exec;
mod prepare;
mod signal;
mod start;
mod status;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use dhow_core::ids::ReplicaName;

pub use capabilities::{Capabilities, Enforcement, LimitSupport};
pub use connection::Connection;
pub use error::{Cause, DriverError, Stage, error_chain};
pub use exec::{ExecChunk, ExecOutput, ExecRequest, ExecSession, OUTPUT_CHUNKS_MAX, Terminal, WindowSize};
pub use prepare::{Preparation, Prepared, Progress, ProgressSink};
pub use signal::StopSignal;
pub use start::{FileBind, OnAddress, PortBinding, ReplicaStart, StartRecord};
pub use status::{Exit, ExitKind, ReplicaStatus, Running, StopRequest, UnknownExit};

pub use crate::cgroup::Usage;
pub use crate::logs::{LogLimits, LogSource};

/// A call under way. Boxed, so that the agent can hold drivers of several kinds.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub type DriverResult<T> = Result<T, DriverError>;

/// Runs replicas on this host.
pub trait Driver: Send + Sync {
    /// What works here and what does not, in words for the operator.
    fn probe(&self) -> Pending<'_, Capabilities>;

    /// Gets ready what a start needs (an image); may take minutes and says how far it is. A start without
    /// it does the same, only later.
    fn prepare<'a>(
        &'a self,
        what: &'a Preparation,
        progress: &'a dyn ProgressSink,
    ) -> Pending<'a, DriverResult<Prepared>>;

    /// Starts a replica. It runs when this returns, or nothing of it is left. A replica of that name that
    /// has ended is replaced and its logs go on; one that runs is an error.
    fn start<'a>(&'a self, start: &'a ReplicaStart) -> Pending<'a, DriverResult<Running>>;

    /// All replicas that exist on this host, running or ended and not removed.
    fn list(&self) -> Pending<'_, DriverResult<Vec<(ReplicaName, ReplicaStatus)>>>;

    /// One of them, now.
    fn inspect<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<ReplicaStatus>>;

    /// Waits for its end, or tells of it when it was long ago. Any number may wait.
    fn wait<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Exit>>;

    /// Asks it to end; after the grace makes it and all its processes end. Returns how it ended; for one
    /// that had ended before, that.
    fn stop<'a>(&'a self, name: &'a ReplicaName, how: StopRequest) -> Pending<'a, DriverResult<Exit>>;

    /// Sends a signal to the first process of one that runs, which in a container passes it on.
    fn signal<'a>(&'a self, name: &'a ReplicaName, signal: StopSignal) -> Pending<'a, DriverResult<()>>;

    /// Runs a command beside the workload: same user, environment, folder, namespaces and limits.
    fn exec<'a>(
        &'a self,
        name: &'a ReplicaName,
        request: ExecRequest,
    ) -> Pending<'a, DriverResult<ExecSession>>;

    /// Opens a TCP connection to a port of the workload, from where the workload itself would.
    fn connect<'a>(&'a self, name: &'a ReplicaName, port: u16) -> Pending<'a, DriverResult<Connection>>;

    /// The same by the port that its service names, for callers from elsewhere: it reaches nothing of this host that is
    /// not the replica's.
    fn reach<'a>(&'a self, name: &'a ReplicaName, port: u16) -> Pending<'a, DriverResult<Connection>> {
        self.connect(name, port)
    }

    /// Where other processes of this host reach its ports; `None` for one that listens on the host itself.
    fn address<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Option<IpAddr>>> {
        let _ = name;
        Box::pin(async { Ok(None) })
    }

    /// What it uses now.
    fn usage<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Usage>>;

    /// Its output.
    fn logs<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<LogSource>>;

    /// Removes every trace, logs included; ends it first, without grace, if it runs. Removing what does not
    /// exist is fine.
    fn remove<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<()>>;
}
