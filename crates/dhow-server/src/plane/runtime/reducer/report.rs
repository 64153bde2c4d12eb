//! From a node's report, which knows replicas by name, to a command, which knows them by key.

use dhow_core::command::{AgentCommand, AgentEvent, InventoryItem};
use dhow_core::ids::{Generation, NodeId, ReplicaKey, ReplicaName, RoleId, ServiceId, Slot};
use dhow_core::state::State;

use crate::plane::runtime::input::ReportBody;

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

pub(super) fn command(state: &State, node: NodeId, incarnation: u64, body: ReportBody) -> AgentCommand {
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
