//! From a node's report, which knows replicas by name, to a command, which knows them by key; and from what became of
//! that to the answer that the node gets. Servers and simulated ones answer with the same words.

use super::{OpenRollout, ReportBody};
use crate::command::{AgentCommand, AgentEvent, InventoryItem, Refused};
use crate::ids::{Generation, NodeId, ReplicaKey, ReplicaName, RoleId, ServiceId, Slot};
use crate::state::State;

/// No service has this id: ids are given from 1 on. An event of a replica that is forgotten must keep its place
/// in the node's count, and applying it to nobody does nothing.
const FORGOTTEN: ReplicaKey = ReplicaKey {
    service: ServiceId(0),
    slot: Slot {
        role: RoleId(0),
        index: 0,
    },
    generation: Generation(0),
};

/// What the control plane answers to a report: how far it is durable, and what it wants to hear next.
#[derive(Clone, Debug, PartialEq)]
pub enum ReportAnswer {
    /// Everything up to here is durable: the ledger may forget it.
    Durable {
        seq: u64,
        inventory_wanted: bool,
        /// Rollouts that are open for the node and that it did not name: the first report of a session brings them, long
        /// before a heartbeat is due.
        open: Vec<OpenRollout>,
    },
    /// It has everything up to here and misses what follows.
    ReplayFrom { seq: u64 },
    /// It knows another life of this node, or none: it wants to hear everything.
    InventoryWanted,
}

impl ReportAnswer {
    /// The answer to a report that is in the log, up to this number. What diverged cannot have happened to the mirror.
    pub fn taken(durable_seq: u64, has_diverged: bool) -> Self {
        Self::Durable {
            seq: durable_seq,
            inventory_wanted: has_diverged,
            open: Vec::new(),
        }
    }

    /// The answer to a report that `step` has refused, where that asks for another report.
    pub fn of_refusal(refused: &Refused) -> Option<Self> {
        if let Refused::Incarnation { .. } = refused {
            return Some(Self::InventoryWanted);
        }
        if let Refused::Gap { replay_from, .. }
        | Refused::OldInventory {
            known: replay_from, ..
        } = refused
        {
            return Some(Self::ReplayFrom { seq: *replay_from });
        }
        None
    }
}

/// The answer to a report where the state has it: then nothing is written.
///
/// Events of a life of the node that the state does not know would be refused: ten thousand workers that join would
/// otherwise write an entry of the log each. A state that is behind only asks for one inventory more. A report that only
/// asks how far the control plane is has its answer in the state as well.
pub fn known_answer(
    state: &State,
    node: NodeId,
    incarnation: u64,
    body: &ReportBody,
) -> Option<ReportAnswer> {
    let ReportBody::Events { first_seq, events } = body else {
        return None;
    };
    let session = state.node(node)?.session;
    if session.incarnation != incarnation {
        return Some(ReportAnswer::InventoryWanted);
    }
    let is_known = events.is_empty() && *first_seq <= session.seq.saturating_add(1);
    is_known.then(|| ReportAnswer::taken(session.seq, false))
}

/// The command that a report becomes.
pub fn report_command(state: &State, node: NodeId, incarnation: u64, body: ReportBody) -> AgentCommand {
    let key = |name: &ReplicaName| state.replica_key(name);
    match body {
        ReportBody::Events { first_seq, events } => AgentCommand::Report {
            node,
            incarnation,
            first_seq,
            events: events
                .into_iter()
                .map(|(name, event)| AgentEvent {
                    replica: key(&name).unwrap_or(FORGOTTEN),
                    event,
                })
                .collect(),
        },
        ReportBody::Inventory { seq, replicas } => AgentCommand::Inventory {
            node,
            incarnation,
            seq,
            replicas: replicas
                .into_iter()
                .filter_map(|(name, machine)| {
                    Some(InventoryItem {
                        replica: key(&name)?,
                        machine,
                    })
                })
                .collect(),
        },
    }
}
