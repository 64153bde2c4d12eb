//! The scripted fake: a driver that runs nothing and keeps all in memory, for tests and simulations.
//!
//! What a replica does is written in its environment:
//!
//! | variable | effect |
//! |---|---|
//! | `FAKE_PREPARE_ERROR`, `FAKE_PREPARE_DELAY_MS` | preparing fails with this text, or takes this long |
//! | `FAKE_START_ERROR`, `FAKE_START_DELAY_MS` | the same for starting |
//! | `FAKE_START_SILENT` | it starts, and takes longer to say so than anybody waits |
//! | `FAKE_EXIT_CODE` / `FAKE_EXIT_SIGNAL`, `FAKE_EXIT_AFTER_MS` | ends so, this long after its start |
//! | `FAKE_OOM` | that end is one for want of memory |
//! | `FAKE_STOP_CODE`, `FAKE_STOP_DELAY_MS` | how and how long after a stop signal it ends; else by the signal, at once |
//! | `FAKE_REMOVE_DELAY_MS` | removing it takes this long |
//! | `FAKE_IGNORE_STOP` | only SIGKILL ends it |
//! | `FAKE_HEALTHY_AFTER_MS`, `FAKE_UNHEALTHY_AFTER_MS` | ports and commands answer from, and until, then |
//! | `FAKE_STDOUT`, `FAKE_STDERR` | lines that it writes at its start |
//!
//! All time is tokio's, so a paused clock works; a replica costs a map entry and no task, so thousands are
//! cheap. A port answers any HTTP request with 200. [`FakeHost`] is the host: drivers opened on the same
//! host see the same replicas, as a daemon that was restarted does.

mod exec;
mod host;
mod replica;
mod script;

pub use host::{FakeDriver, FakeHost};
pub use script::Script;

#[cfg(test)]
mod tests;
