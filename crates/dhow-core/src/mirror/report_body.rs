//! What moves the mirror: a node's account of its replicas, by their names.

use crate::ids::ReplicaName;
use crate::replica::{Machine, ReplicaEvent};

/// The content of a node's report: events that follow on, or an inventory.
#[derive(Clone, Debug, PartialEq)]
pub enum ReportBody {
    /// Events in the order of the node's ledger; the first has this number, the others follow on. Without any it
    /// only asks how far the control plane is.
    Events {
        first_seq: u64,
        events: Vec<(ReplicaName, ReplicaEvent)>,
    },
    /// Everything that the node has, as of this number.
    Inventory {
        seq: u64,
        replicas: Vec<(ReplicaName, Machine)>,
    },
}

impl ReportBody {
    /// Whether it is what a node says first, a question or an account of everything: it hears then what is open for it,
    /// and later with its heartbeats. News of ten thousand nodes are not each answered with specs.
    pub fn is_greeting(&self) -> bool {
        match self {
            Self::Events { events, .. } => events.is_empty(),
            Self::Inventory { .. } => true,
        }
    }
}
