//! An agent against a control plane in memory that uses the real state, planner and mirror, on a host that runs
//! nothing. Time is tokio's, paused: it jumps to whatever happens next.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod files;
mod heartbeats;
mod lives;
mod orders;
mod plane;
mod restarts;
mod settings;
