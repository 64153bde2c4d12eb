//! One line of a replica's log: a line of the stream that `/logs` answers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogRecord {
    pub deployment: String,
    /// The replica's id inside its deployment.
    pub replica: String,
    pub node_id: u64,
    pub time_unix_us: i64,
    pub stream: LogStream,
    /// Without the line's end.
    pub text: String,
}

/// Where a line of a log came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    Stdout,
    Stderr,
    /// Not the replica's words: lines were lost, or a node cannot be reached.
    Notice,
}
