//! Why things were not done yet: what `explain`, `status` and a failed deployment show.

use std::fmt;

use imbl::OrdMap;
use serde::Serialize;

use crate::ids::{NodeId, RoleName, ServiceId, ServiceName, Slot};
use crate::placement::Unplaced;
use crate::spec::{Condition, TimeSpan};
use crate::time::ClusterTime;

/// Everything that waits, by service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanReport {
    pub services: OrdMap<ServiceId, ServiceReport>,
}

/// What waits in one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServiceReport {
    pub waiting: Vec<Waiting>,
}

/// Slots of one role that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiting {
    pub role: RoleName,
    /// The first of them, and how many there are.
    pub first: Slot,
    pub slots: u32,
    pub why: Why,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Why {
    /// No node takes it.
    Unplaced { unplaced: Unplaced },
    /// Replicas of less important services are ending to make room.
    RoomToCome { nodes: u32 },
    /// A service that it depends on is not there yet.
    WaitsFor {
        service: ServiceName,
        condition: Condition,
    },
    /// The replica before it has not ended yet.
    OldStopping { node: NodeId },
    /// Its node is lost, and it is given time to come back.
    NodeMayReturn {
        node: NodeId,
        given: TimeSpan,
        until: ClusterTime,
    },
    /// Its node is lost, and the spec says not to start it elsewhere.
    NotRescheduled { node: NodeId },
    /// Its node is lost and keeps its volume.
    VolumeLost { node: NodeId },
    /// Its turn in the rollout has not come.
    TurnToCome,
    /// The rollout failed and was told to pause.
    Paused,
}

impl ServiceReport {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a slot, joined with the last one where the reason is the same.
    pub(super) fn add(&mut self, role: &RoleName, slot: Slot, why: Why) {
        if let Some(last) = self.waiting.last_mut()
            && last.role == *role
            && last.why == why
        {
            last.slots = last.slots.saturating_add(1);
            return;
        }
        self.waiting.push(Waiting {
            role: role.clone(),
            first: slot,
            slots: 1,
            why,
        });
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unplaced { unplaced } => unplaced.fmt(f),
            Self::RoomToCome { nodes } => {
                write!(
                    f,
                    "room is being made for it on {nodes} node{}",
                    if *nodes == 1 { "" } else { "s" }
                )
            }
            Self::WaitsFor { service, condition } => {
                let word = match condition {
                    Condition::Healthy => "healthy",
                    Condition::Started => "started",
                    Condition::Ready => "ready",
                };
                write!(f, "waits for `{service}` to be {word}")
            }
            Self::OldStopping { node } => {
                write!(f, "waits for the replica before it to end on node {node}")
            }
            // Cluster time means nothing to people, so they are told how long and not until when.
            Self::NodeMayReturn { node, given, .. } => {
                write!(f, "node {node} is lost and has {given} to come back")
            }
            Self::NotRescheduled { node } => {
                write!(
                    f,
                    "node {node} is lost and the spec says not to start it elsewhere"
                )
            }
            Self::VolumeLost { node } => write!(f, "its volume is on node {node}, which is lost"),
            Self::TurnToCome => f.write_str("its turn in the rollout has not come"),
            Self::Paused => f.write_str("the rollout failed and is paused"),
        }
    }
}
