//! The words of the command line: what the verbs take, how targets are written, and what an answer of the API looks like
//! to people.
//!
//! Called by the `dhow` binary, which fetches the answers and writes what this crate makes of them, and by the scenarios
//! of `dhow-sim`, which ask a simulated cluster the same. It must never read a clock, a terminal, a file or a socket:
//! the time and the place from which somebody looks are passed in.

pub mod cron;
pub mod deploy;
pub mod endpoints;
pub mod events;
pub mod explain;
pub mod history;
pub mod human;
pub mod net;
pub mod node;
pub mod plan;
pub mod progress;
pub mod ps;
pub mod rebalance;
pub mod restart;
pub mod rm;
pub mod rollback;
pub mod rollout;
pub mod scale;
pub mod shown;
pub mod source_files;
pub mod start;
pub mod status;
pub mod stop;
pub mod suspend;
mod table;
pub mod target;
pub mod volume;
pub mod wait;

pub use shown::{ERROR, Shown, word, yes_no};
pub use table::Table;
