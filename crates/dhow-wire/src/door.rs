//! What only a node has and others ask it for: its replicas as it knows them, their output, the images on their way.
//!
//! An agent answers with these, the API passes them on, and nodes send them to each other as JSON. Nothing here decides
//! or waits.

use dhow_core::ids::{ReplicaName, ServiceKey};
use dhow_core::replica::Machine;
use serde::{Deserialize, Serialize};

use crate::api::{COPY_UPGRADE, CopyRequest, LogRecord, Terminal, exec_upgrade};

/// Which lines of which replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogQuery {
    pub replicas: Vec<ReplicaName>,
    /// The last so many lines of each replica; all that are kept, up to a limit, where there is none.
    pub tail: Option<usize>,
    /// Whether to go on with what is written from then on.
    pub follow: bool,
    /// Which of them; what is left out does not count for `tail`.
    #[serde(default, skip_serializing_if = "LineFilter::is_open")]
    pub lines: LineFilter,
}

/// Which lines of a log are wanted: all where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineFilter {
    /// Written then or later.
    #[serde(default)]
    pub since_unix_us: Option<i64>,
    /// Written before that.
    #[serde(default)]
    pub until_unix_us: Option<i64>,
    /// Those that have this text in them.
    #[serde(default)]
    pub grep: Option<String>,
    /// Those of the run before the newest one of each replica. A node of an older version does not leave the others out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub previous: bool,
}

impl LineFilter {
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    pub fn wants(&self, time_unix_us: i64, text: &str) -> bool {
        self.since_unix_us.is_none_or(|since| time_unix_us >= since)
            && self.until_unix_us.is_none_or(|until| time_unix_us < until)
            && self.grep.as_ref().is_none_or(|part| text.contains(part.as_str()))
    }
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
    /// The terminal that it runs at, where it runs at one: its input and both of its outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// In place of a command: a connection to this port, as the replica's service names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// In place of a command: files that are copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyRequest>,
}

impl ExecRequest {
    /// What the connection speaks that carries it.
    pub fn protocol(&self) -> &'static str {
        match self.copy {
            Some(_) => COPY_UPGRADE,
            None => exec_upgrade(self.terminal.is_some(), self.port.is_some()),
        }
    }
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

/// A volume of a node, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VolumeName {
    pub deployment: String,
    pub name: String,
}

impl std::fmt::Display for VolumeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.deployment, self.name)
    }
}

/// A volume as its node finds it on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeVolume {
    pub volume: VolumeName,
    pub used_bytes: u64,
    /// It has more files than are counted.
    pub is_larger: bool,
    pub limit_bytes: Option<u64>,
    pub created_unix_secs: Option<i64>,
    pub used_unix_secs: Option<i64>,
}

/// A replica that is on a node, or was and is still spoken of, as the node itself knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct PresentReplica {
    pub name: ReplicaName,
    pub machine: Machine,
    pub image: Option<String>,
    /// The volumes that it mounts; none where nobody remembers what it was made from.
    pub volumes: Option<Vec<String>>,
    /// It starts once a server has confirmed that it is still this node's.
    pub waits: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_leaves_out_what_is_not_wanted() {
        let filter = LineFilter {
            since_unix_us: Some(10),
            until_unix_us: Some(20),
            grep: Some("fail".into()),
            previous: false,
        };
        for (time, text, is_wanted) in [
            (10, "it failed", true),
            (19, "fail", true),
            (9, "it failed", false),
            (20, "it failed", false),
            (15, "it works", false),
        ] {
            assert_eq!(filter.wants(time, text), is_wanted, "{time} {text}");
        }
        assert!(LineFilter::default().is_open() && LineFilter::default().wants(0, ""));
    }

    #[test]
    fn a_node_of_an_older_version_is_sent_what_it_knows() {
        let query = LogQuery {
            replicas: Vec::new(),
            tail: None,
            follow: false,
            lines: LineFilter::default(),
        };
        let text = r#"{"replicas":[],"tail":null,"follow":false}"#;
        assert_eq!(serde_json::to_string(&query).unwrap(), text);
        assert_eq!(serde_json::from_str::<LogQuery>(text).unwrap(), query);
    }
}
