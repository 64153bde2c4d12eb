//! What a driver can do on this host.

use serde::{Deserialize, Serialize};

/// How far a limit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// For the replica as a whole.
    Whole,
    /// For each of its processes by itself.
    PerProcess,
    /// Not at all.
    Absent,
}

/// How well this host enforces each limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSupport {
    pub memory: Enforcement,
    pub cpu: Enforcement,
    pub pids: Enforcement,
}

/// What a driver found out about this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Whether replicas can be started at all; if not, a notice says why and what to do.
    pub available: bool,
    pub limits: LimitSupport,
    /// What is missing, one sentence each: to be shown once.
    pub notices: Vec<String>,
}
