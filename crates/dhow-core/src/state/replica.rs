//! A replica as the cluster sees it: the mirror of its node's machine, and what the cluster wants of it.

use serde::{Deserialize, Serialize};

use super::settings::Trial;
use crate::ids::NodeId;
use crate::replica::{Machine, ReplicaState};
use crate::spec::TimeSpan;
use crate::time::ClusterTime;

/// Whether the cluster wants a replica to run or to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    Run,
    Stop,
}

/// A replica in State.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replica {
    pub node: NodeId,
    pub wanted: Wanted,
    pub machine: Machine,
    pub placed: ClusterTime,
    /// When the machine last changed its state.
    pub since: ClusterTime,
    /// Since when it has been healthy without a break.
    pub healthy_since: Option<ClusterTime>,
    /// When its present process was started; none for one that was reported before servers kept this.
    #[serde(default)]
    pub started: Option<ClusterTime>,
    /// Failures in a row that may be its node's: all but those to fetch what it is made from.
    #[serde(default)]
    pub node_failures: u32,
    /// Its attempt at settings that are to come.
    #[serde(default)]
    pub trial: Option<Trial>,
    /// The files that its process was started with ([`ServiceSpec::silent_files`](crate::spec::ServiceSpec::silent_files)),
    /// once others have taken their place without a word to it.
    #[serde(default)]
    pub read: Option<u64>,
    /// The node that is to have its slot, by a rebalance: it goes once another one serves there.
    #[serde(default)]
    pub moves_to: Option<NodeId>,
}

impl Replica {
    pub fn is_running(&self) -> bool {
        self.machine.state == ReplicaState::Running
    }

    pub fn is_healthy(&self) -> bool {
        self.is_running() && self.machine.healthy
    }

    /// Whether it has been healthy for at least `span`.
    pub fn is_healthy_for(&self, span: TimeSpan, now: ClusterTime) -> bool {
        self.is_healthy() && self.healthy_since.is_some_and(|since| since.after(span) <= now)
    }

    /// Whether it may still use what it reserved.
    pub fn reserves(&self) -> bool {
        !self.machine.state.is_ended()
    }

    /// A job's replica that has done its work.
    pub fn is_completed(&self) -> bool {
        self.machine.state == ReplicaState::Exited
            && self.machine.exit.is_some_and(crate::replica::Exit::is_success)
    }
}
