//! What a keeper's core is told.

use dhow_core::assignment::Assignment;
use dhow_core::ids::ReplicaName;

use crate::session::{HeartbeatAnswer, Pace, ReportAnswer, RolloutId, SessionError};
use crate::wish::Happening;

/// A replica that the host has, whatever the ledger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundReplica {
    pub name: ReplicaName,
    /// It ended with an earlier start of the host.
    pub is_of_another_boot: bool,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum CoreInput {
    /// Runners tell.
    Happened(Vec<Happening>),
    /// The report under way is answered, or not.
    Reported(Result<ReportAnswer, SessionError>),
    /// The heartbeat under way is.
    Beaten(Result<HeartbeatAnswer, SessionError>),
    /// An assignment has come, or cannot be had.
    Told(Result<Assignment, SessionError>),
    /// Whether the highest order is on disk, as [`CoreAction::PutHighest`] asked.
    HighestPut { is_on_disk: bool },
    /// It is on disk that a server has confirmed this node in this start of the host.
    BootConfirmed { boot_id: String },
    /// The node has prepared for these rollouts, and tries no longer for the others.
    Prepared(Vec<RolloutId>),
    /// What the control plane says about heartbeats.
    Paced(Pace),
    /// Time has passed.
    Woken,
}
