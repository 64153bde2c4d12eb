//! Why things were not done yet: what `explain`, `status` and a failed deployment show.

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use serde::Serialize;

use crate::ids::{NodeId, RoleName, ServiceId, ServiceKey, ServiceName, Slot};
use crate::placement::Unplaced;
use crate::rollout::AtGate;
use crate::spec::{Condition, TimeSpan};
use crate::time::ClusterTime;

/// Entries of one service up to which those with a gap between them are kept apart: enough for people, and a
/// service of a million replicas with every second one waiting makes no list of half a million.
const WAITING_APART_MAX: usize = 256;

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

/// Slots of one role, one after the other, that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiting {
    pub role: RoleName,
    /// The first of them, and how many there are.
    pub first: Slot,
    pub slots: u32,
    pub why: Why,
}

/// Why a replica, a service or a drain waits.
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
    /// A service that it depends on was stopped by people.
    WaitsForStopped { service: ServiceKey },
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
    /// It has to leave its node, and its service can spare it only later.
    LeavesLater { node: NodeId },
    /// The rollout failed and was told to pause.
    Paused,
    /// It has to leave its node and waits until the one in its place can be relied on.
    ReplacementUnproven { node: NodeId },
    /// As much of its job is under way as may be at a time.
    WorkToCome { most: u32 },
    /// It goes on as before until it has passed its new settings.
    TriesSettings { node: NodeId, message: Option<Arc<str>> },
    /// Its rollout waits at a gate.
    AtGate { at: AtGate },
    /// It shares a volume with other services, and no node takes all of them.
    NoNodeForAll { volume: String, mates: Vec<Mate> },
}

/// One of the services that share a volume, and where it would find a place by itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mate {
    pub service: ServiceName,
    pub unplaced: Unplaced,
}

impl ServiceReport {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Why a slot waits, where it does.
    pub fn why(&self, role: &RoleName, slot: Slot) -> Option<&Why> {
        let of = |waiting: &&Waiting| {
            let past = slot.index.checked_sub(waiting.first.index);
            waiting.role == *role && past.is_some_and(|past| past < waiting.slots)
        };
        self.waiting.iter().find(of).map(|waiting| &waiting.why)
    }

    /// Adds a slot, joined with the one before it where the reason is the same.
    pub(super) fn add(&mut self, role: &RoleName, slot: Slot, why: Why) {
        let crowded = self.waiting.len() >= WAITING_APART_MAX;
        if let Some(last) = self.waiting.last_mut()
            && last.role == *role
            && last.why == why
            && (crowded || last.first.index.checked_add(last.slots) == Some(slot.index))
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

impl Why {
    /// Whether only a change of the cluster helps: time alone brings no place.
    pub fn is_stuck(&self) -> bool {
        match self {
            Self::Unplaced { .. }
            | Self::NotRescheduled { .. }
            | Self::VolumeLost { .. }
            | Self::NoNodeForAll { .. }
            | Self::WaitsForStopped { .. } => true,
            Self::RoomToCome { .. }
            | Self::WaitsFor { .. }
            | Self::OldStopping { .. }
            | Self::NodeMayReturn { .. }
            | Self::TurnToCome
            | Self::LeavesLater { .. }
            | Self::Paused
            | Self::ReplacementUnproven { .. }
            | Self::WorkToCome { .. }
            | Self::TriesSettings { .. }
            | Self::AtGate { .. } => false,
        }
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
                    Condition::Healthy => "be healthy",
                    Condition::Started => "be started",
                    Condition::Ready => "be ready",
                    Condition::Completed => "complete",
                };
                write!(f, "waits for `{service}` to {word}")
            }
            Self::WaitsForStopped { service } => {
                let name = &service.service;
                write!(f, "waits for `{name}`, which is stopped: `dhow start {service}`")
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
            Self::LeavesLater { node } => {
                write!(
                    f,
                    "leaves node {node} when others of its service have been replaced and are healthy"
                )
            }
            Self::Paused => f.write_str("the rollout failed and is paused"),
            Self::ReplacementUnproven { node } => {
                write!(
                    f,
                    "stays until the one in its place on node {node} has proved itself"
                )
            }
            Self::AtGate { at } => at.fmt(f),
            Self::NoNodeForAll { volume, mates } => fmt_mates(volume, mates, f),
            Self::WorkToCome { most } => {
                write!(f, "its turn comes when one of the {most} at work is done")
            }
            Self::TriesSettings { node, message } => {
                write!(f, "tries its new settings on node {node}")?;
                match message {
                    Some(why) => write!(f, ", which does not pass: {why}"),
                    None => Ok(()),
                }
            }
        }
    }
}

fn fmt_mates(volume: &str, mates: &[Mate], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "no node takes all that share volume `{volume}`")?;
    for (position, mate) in mates.iter().enumerate() {
        let before = if position == 0 { ": " } else { ", and " };
        let places = mate.unplaced.with_hindrances();
        write!(f, "{before}of `{}` {places}", mate.service)?;
    }
    Ok(())
}
