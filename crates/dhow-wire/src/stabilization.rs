//! Whether a deployment has become stable, and what to tell its user if it has not.
//!
//! The server's waiting loop observes, asks [`evaluate`] and, after its timeout, ends with
//! [`Evaluation::into_timed_out`]; clients print
//! the result. Pure: it never fetches a log or waits by itself.

mod message;
mod observation;
mod result;

pub use message::{LOG_LINES_SHOWN_MAX, log_block, timed_out_message};
pub use observation::{Evaluation, ServiceLogs, ServiceObservation, evaluate};
pub use result::{ServiceHealthSummary, StabilizationOutcome, StabilizationResult};

#[cfg(test)]
mod tests;
