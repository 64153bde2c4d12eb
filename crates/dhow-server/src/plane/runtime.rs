//! The control plane's runtime: one reducer task that owns the state, and the tasks around it.
//!
//! ```text
//!  manifest poll ─┐
//!  event ingest  ─┼─▶ bounded inbox ─▶ reducer (step, plans) ─▶ applier
//!  heartbeats    ─┤                       │
//!  long polls    ─┘                       └─▶ event log writer
//! ```
//!
//! Called by the daemon, which starts it once, hands its senders to the API and the worker gateway, and drains it at
//! the end. One channel, one mutator: nothing but the reducer changes the state, in every mode, and nobody but the
//! applier executes what follows from it. It must never wait for a proposal inside its loop, hold an unbounded
//! queue, or read a clock that was not passed in.

mod applier;
mod cluster_timer;
mod directory;
mod error;
mod event;
mod event_hub;
mod event_log;
mod handle;
mod heartbeat;
mod holder_progress;
mod inbox;
mod input;
pub mod limits;
mod log_hold;
mod manifest_poll;
mod observed;
mod open;
mod options;
mod past_writer;
mod plan_tick;
mod reducer;
mod shutdown;
mod signals;
mod start;
mod view;
mod volatile_log;
mod wakeups;

pub(crate) use cluster_timer::ClusterTimer;
pub use directory::{Directories, DirectoryFollower};
pub(crate) use error::refused_code;
pub use error::{InboxError, RuntimeFailure, WriteError};
pub use event::{
    BadEventId, Event, EventId, EventKind, EventRecord, EventRecorder, differences, is_failed_run,
};
pub use event_hub::{EventHub, TooOld};
pub use event_log::{EventLogSender, EventReader, EventStore, EventStoreError, EventsGone, ReadEventsError};
pub use handle::RuntimeHandle;
pub use heartbeat::HeartbeatIngest;
pub use inbox::InputSender;
pub use input::{Applied, HeartbeatReply, HostReport, ReducerInput, ReportAck, ReportBody, WriteRequest};
pub use manifest_poll::{
    HookProof, HookRefused, LastLook, ManifestSource, ManifestSources, Purpose, ReadSetError, SourceError,
    WaitingSet, read_manifest_files,
};
pub use observed::{Observed, SeenLease};
pub use open::{OpenError, OpenedCopied, OpenedRaft, OpenedRuntime, open_copied, open_local, open_raft};
pub use options::{PlanFn, RuntimeLog, RuntimeOptions, SnapshotPolicy};
pub use shutdown::{Drained, RuntimeTask, ShutdownSender, ShutdownToken, TaskName, drain};
pub use signals::cancel_on_signals;
pub use start::{spawn, spawn_with};
pub use view::RuntimeView;
pub use volatile_log::VolatileLog;
pub use wakeups::NodeWakeups;

#[cfg(test)]
mod tests;
