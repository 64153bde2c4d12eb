//! Whether a deployment has become stable, and what to tell its user if it has not.
//!
//! The server's waiting loop observes, asks [`evaluate`] and, after its timeout, ends with
//! [`Evaluation::into_timed_out`]; clients print
//! the result. Pure: it never fetches a log or waits by itself.

mod evaluation;
mod message;
mod result;

pub use evaluation::{Evaluation, ServiceLogs, evaluate};
pub use message::{LOG_LINES_SHOWN_MAX, log_block, timed_out_message};
pub use result::{ServiceHealthSummary, StabilizationOutcome, StabilizationResult, StoppedService};

#[cfg(test)]
mod tests;
