//! What a node and its replicas use, as the node measures it. Told with heartbeats and kept in memory alone: nothing is
//! decided by it, and it never enters the log.

use crate::ids::ReplicaName;

/// What a node uses, and what each of its replicas does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Thousandths of a core, over the time since the last measurement.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub replicas: Vec<(ReplicaName, ReplicaUsage)>,
}

/// What one replica uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaUsage {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// When its process was started, by the node's wall clock.
    pub started_unix_secs: Option<i64>,
}

impl NodeUsage {
    /// Replicas that one message tells of: at about 100 bytes each, 100 KiB.
    pub const REPLICAS_MAX: usize = 1_000;

    pub fn replica(&self, name: &ReplicaName) -> Option<&ReplicaUsage> {
        let mut all = self.replicas.iter();
        all.find(|(known, _)| known == name).map(|(_, usage)| usage)
    }
}
