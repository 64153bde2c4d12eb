//! What a keeper's core wants done.

use std::time::Duration;

use dhow_core::ids::{ReplicaName, Revision, ServiceKey};

use crate::highest::Highest;
use crate::ledger::{Record, Tracked};
use crate::session::{Heartbeat, OpenRollout, Report};
use crate::wish::Wish;

/// A runner that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct RunnerBeginning {
    pub name: ReplicaName,
    pub wish: Wish,
    /// What is known of the replica from before.
    pub tracked: Tracked,
    /// It was just assigned: nothing of it was here.
    pub is_new: bool,
}

/// What is to be done. A core that has asked for an answer asks nothing else of the same kind before it has it.
#[derive(Clone, Debug, PartialEq)]
pub enum CoreAction {
    /// Write these into the ledger. The core has taken them in: where this fails, the agent ends.
    Append(Vec<Record>),
    /// Put this on disk before the order is acted on, and say whether it is.
    PutHighest(Highest),
    /// Put it on disk that a server has confirmed this node in this start of the host, and say it where it is.
    ConfirmBoot {
        boot_id: String,
    },
    /// Make a runner.
    Begin(Box<RunnerBeginning>),
    /// Something else is wished of a runner.
    Wish {
        name: ReplicaName,
        wish: Wish,
    },
    /// A runner has ended: forget it.
    LetGo {
        name: ReplicaName,
    },
    /// No replica of this service is left here.
    CloseService(ServiceKey),
    /// Hand in a report after a pause.
    Report {
        pause: Duration,
        report: Report,
    },
    Beat(Heartbeat),
    /// After a pause, wait for an assignment that is newer than the last.
    Ask {
        pause: Duration,
        last: Option<Revision>,
    },
    /// Prepare for rollouts.
    Prepare(Vec<OpenRollout>),
}
