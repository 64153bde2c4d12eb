//! A node as placement sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::amount::Amount;
use crate::ids::{NodeId, ServiceId};
use crate::spec::VolumeSupport;

/// Whether a node takes new replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Openness {
    #[default]
    Open,
    /// It is being emptied.
    Draining,
    /// It was emptied.
    Drained,
    Unreachable,
    /// It never runs any, as a server that only belongs to the control plane.
    NoReplicas,
}

/// Who has claimed a node for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Occupant {
    #[default]
    Nobody,
    /// Only replicas of this service.
    Dedicated(ServiceId),
    /// One replica of this service and nothing else.
    Exclusive(ServiceId),
}

/// All that placement knows of a node. `used` and `replicas` count everything that reserves something here,
/// of every service, that which is still stopping included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub id: NodeId,
    pub open: Openness,
    pub os: Arc<str>,
    pub arch: Arc<str>,
    pub labels: Arc<BTreeMap<String, String>>,
    pub capacity: Amount,
    pub used: Amount,
    pub replicas: u32,
    pub occupant: Occupant,
    /// It shows replicas configs and secrets as files.
    pub mounts_files: bool,
    /// It runs steps before the program of a replica.
    pub runs_steps: bool,
    /// What it can do for volumes.
    pub volumes: VolumeSupport,
}

impl NodeRow {
    /// What is left; nothing where more is used than there is, as after a node has shrunk.
    pub fn free(&self) -> Amount {
        self.capacity.minus(self.used)
    }

    /// Whether the index of labels and platforms would hold the same for both.
    pub(super) fn has_tags_of(&self, other: &Self) -> bool {
        self.os == other.os
            && self.arch == other.arch
            && (Arc::ptr_eq(&self.labels, &other.labels) || self.labels == other.labels)
    }
}
