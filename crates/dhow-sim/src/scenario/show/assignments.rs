//! `assignments`: what a node that has seen a revision would be told now.

use dhow_core::ids::{NodeId, Revision};
use dhow_core::state::{Assigned, AssignmentChange, Service, State};

pub(in crate::scenario) fn assignments(state: &State, node: NodeId, since: Revision) -> Vec<String> {
    let Some(node) = state.node(node) else {
        return vec![format!("there is no node {node}")];
    };
    let name = |id| state.service(id).map(|service| service.key.to_string());
    let line = |change: AssignmentChange<'_>| {
        let revision = change.revision();
        match change {
            AssignmentChange::Set {
                service: id,
                assigned,
            } => {
                let ids = state.service(id).map(|service| ids(service, assigned));
                let name = name(id).unwrap_or_default();
                format!("revision {revision}: {name} is {}", ids.unwrap_or_default())
            }
            AssignmentChange::Delete { service, name, .. } => {
                let name = name.map_or_else(|| format!("service {service}"), ToString::to_string);
                format!("revision {revision}: {name} is gone")
            }
        }
    };
    let lines: Vec<String> = node.assignments.since(since).into_iter().map(line).collect();
    match lines.is_empty() {
        true => vec!["nothing new".into()],
        false => lines,
    }
}

fn ids(service: &Service, assigned: &Assigned) -> String {
    let ids = assigned.replicas.iter().filter_map(|replica| {
        let role = service.role(replica.slot.role)?;
        Some(format!("{role}-{}#{}", replica.slot.index, replica.generation))
    });
    ids.collect::<Vec<_>>().join(", ")
}
