//! What only a node has and others ask it for: its replicas as it knows them, their output, the images on their way.
//!
//! An agent answers with these, the API passes them on, and nodes send them to each other as JSON. Nothing here decides
//! or waits.

use dhow_core::ids::{ReplicaName, ServiceKey};
use dhow_core::replica::Machine;
use serde::{Deserialize, Serialize};

use crate::api::LogRecord;

/// Which lines of which replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogQuery {
    pub replicas: Vec<ReplicaName>,
    /// The last so many lines of each replica; all that are kept, up to a limit, where there is none.
    pub tail: Option<usize>,
    /// Whether to go on with what is written from then on.
    pub follow: bool,
}

/// What a stream of logs carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogItem {
    Record(LogRecord),
    /// Once, where the stream follows: everything that was there has been sent, what comes now is new.
    CaughtUp,
}

/// What to run in a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    pub replica: ReplicaName,
    pub command: Vec<String>,
    /// Whether something will come for its standard input; else it is empty.
    pub stdin: bool,
}

/// Which call to try, from inside a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetCheckRequest {
    pub replica: ReplicaName,
    pub to: ServiceKey,
    pub endpoint: String,
}

/// How far the pull for a replica has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaPull {
    pub replica: ReplicaName,
    pub done_bytes: u64,
    /// Absent until the manifest has been read.
    pub total_bytes: Option<u64>,
}

/// A replica that is on a node, or was and is still spoken of, as the node itself knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct PresentReplica {
    pub name: ReplicaName,
    pub machine: Machine,
    pub image: Option<String>,
    /// It starts once a server has confirmed that it is still this node's.
    pub waits: bool,
}
