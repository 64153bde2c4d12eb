//! A node as the cluster sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdSet;
use serde::{Deserialize, Serialize};

use super::assignment::Assignments;
use crate::amount::Amount;
use crate::ids::{NodeId, ReplicaKey, Revision, ServiceId, Slot};
use crate::spec::{NodeMode, VolumeSupport};
use crate::time::ClusterTime;

/// What a node is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    Server,
    Worker,
    Peer,
}

/// What a node says of itself when it registers, and what people label it with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    pub role: NodeRole,
    pub api_addr: Option<Arc<str>>,
    pub os: Arc<str>,
    pub arch: Arc<str>,
    pub labels: Arc<BTreeMap<String, String>>,
    pub capacity: Amount,
    /// Servers of a worker tier run no replicas unless they are labelled to.
    pub runs_replicas: bool,
    /// Its agent tries settings beside those that count. One that does not is told when all others have passed.
    #[serde(default)]
    pub tries_settings: bool,
    /// `ip:port` at which other nodes reach its proxy; none where it takes no part in the mesh.
    #[serde(default)]
    pub mesh_addr: Option<Arc<str>>,
    /// Its agent shows replicas configs and secrets as files.
    #[serde(default)]
    pub mounts_files: bool,
    /// Its agent runs steps before the program of a replica.
    #[serde(default)]
    pub runs_steps: bool,
    /// What it can do for volumes.
    #[serde(default)]
    pub volumes: VolumeSupport,
}

/// Whether the leader hears a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    Ready,
    Unreachable { since: ClusterTime },
}

/// Whether a node is being emptied, and whether it ends then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drain {
    #[default]
    No,
    /// Its replicas are being moved; `shutdown` also ends the node's process afterwards.
    Draining {
        shutdown: bool,
    },
    Drained {
        shutdown: bool,
    },
}

/// What a drain does with replicas that do not leave by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRules {
    /// From then on they are ended, whatever that costs their services.
    pub ends_at: Option<ClusterTime>,
    /// Replicas of `system` services stay.
    pub ignore_system: bool,
}

/// How far the node's own events have come: the agent's incarnation and the last sequence number applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub incarnation: u64,
    pub seq: u64,
}

/// A service that shares its node with no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub service: ServiceId,
    pub mode: NodeMode,
}

/// Which of the internal tokens of a worker over HTTP count. They are numbered from 1 and made when they are asked for;
/// none is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InternalTokenMark {
    /// The newest that the worker has shown: it has its answer. 0 for one that was not heard since it registered.
    pub number: u32,
    /// The second from which those before it count no more.
    pub earlier_until_unix_secs: i64,
}

impl InternalTokenMark {
    /// Whether a token of this number still counts.
    pub fn takes(&self, number: u32, now_unix_secs: i64) -> bool {
        number >= self.number || now_unix_secs < self.earlier_until_unix_secs
    }

    /// Whether the worker was heard since it registered.
    pub fn is_heard(&self) -> bool {
        self.number > 0
    }
}

/// A node in State: what it says of itself, what people set, and what it is to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub info: Arc<NodeInfo>,
    /// Labels set by people; they win over the node's own.
    pub set_labels: Arc<BTreeMap<String, String>>,
    pub liveness: Liveness,
    pub drain: Drain,
    /// Changes whenever what placement asks of the node does, load apart: plans carry it.
    pub eligibility: Revision,
    /// What its replicas reserve, those that are still stopping included.
    pub used: Amount,
    /// How many replicas reserve something here.
    pub reserving: u32,
    pub taken: Option<Taken>,
    pub assignments: Assignments,
    /// Replicas that are no longer assigned and have not ended yet.
    pub stopping: OrdSet<ReplicaKey>,
    pub session: Session,
    /// It speaks the protocol in its plain form, and has not told two generations of a replica apart: the old one has to
    /// go before the new one comes.
    #[serde(default)]
    pub is_plain: bool,
    #[serde(default)]
    pub drain_rules: DrainRules,
    #[serde(default)]
    pub internal_token: InternalTokenMark,
}

impl Node {
    pub fn new(id: NodeId, info: Arc<NodeInfo>, revision: Revision) -> Self {
        Self {
            id,
            info,
            set_labels: Arc::default(),
            liveness: Liveness::Ready,
            drain: Drain::No,
            eligibility: revision,
            used: Amount::ZERO,
            reserving: 0,
            taken: None,
            assignments: Assignments::default(),
            stopping: OrdSet::new(),
            session: Session::default(),
            is_plain: false,
            drain_rules: DrainRules::default(),
            internal_token: InternalTokenMark::default(),
        }
    }

    /// The node's own labels and those that people set.
    pub fn labels(&self) -> Arc<BTreeMap<String, String>> {
        if self.set_labels.is_empty() {
            return self.info.labels.clone();
        }
        let mut labels = self.info.labels.as_ref().clone();
        labels.extend(
            self.set_labels
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        Arc::new(labels)
    }

    pub fn is_ready(&self) -> bool {
        self.liveness == Liveness::Ready
    }

    pub fn is_draining(&self) -> bool {
        self.drain != Drain::No
    }

    /// Whether the time that its replicas were given to leave is over.
    pub fn ends_replicas(&self, now: ClusterTime) -> bool {
        let due = self.drain_rules.ends_at.is_some_and(|at| at <= now);
        self.is_ready() && self.is_draining() && due
    }

    /// Whether new replicas may come here at all.
    pub fn is_open(&self) -> bool {
        self.is_ready() && !self.is_draining() && self.info.runs_replicas
    }

    /// Every replica that the state has on this node.
    pub fn replica_keys(&self) -> impl Iterator<Item = ReplicaKey> + '_ {
        let key = |service: ServiceId, slot: Slot, generation| ReplicaKey {
            service,
            slot,
            generation,
        };
        let assigned = self.assignments.services().flat_map(move |(service, assigned)| {
            assigned
                .replicas
                .iter()
                .map(move |replica| key(service, replica.slot, replica.generation))
        });
        assigned.chain(self.stopping.iter().copied())
    }

    /// Whether nothing runs or is about to run on it; records of what has ended may be left.
    pub fn is_idle(&self) -> bool {
        self.reserving == 0
    }

    /// Whether nothing of the cluster's is on it any more.
    pub fn is_empty(&self) -> bool {
        self.assignments.is_empty() && self.stopping.is_empty()
    }
}
