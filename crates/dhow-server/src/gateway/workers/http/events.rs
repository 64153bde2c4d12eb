//! An assignment as the events of the JSON form.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::dispatch::{Dispatch, DispatchChange, DispatchedReplica};
use dhow_core::ids::{Generation, RoleName, ServiceKey};
use dhow_core::spec::ServiceSpec;
use dhow_wire::names::deployment_on_wire;
use dhow_wire::worker::RoleSpecs;
use dhow_wire::{ScaleAssignment, WorkerAssignmentEvent};

/// All with the revision of the assignment: a worker that has recorded it has them all.
pub(super) fn events_of(dispatch: &Dispatch) -> Vec<WorkerAssignmentEvent> {
    let revision = dispatch.revision.0;
    let changes = dispatch.changes.iter();
    changes
        .map(|change| match change {
            DispatchChange::Set { service, replicas } => set_of(service, replicas, revision),
            DispatchChange::Delete { service } => WorkerAssignmentEvent::Delete {
                service: service.service.to_string(),
                revision,
                deployment: deployment_on_wire(&service.deployment),
            },
        })
        .collect()
}

/// Roles of one service may run different things: each has its own specs, by generation.
fn set_of(service: &ServiceKey, replicas: &[DispatchedReplica], revision: u64) -> WorkerAssignmentEvent {
    let mut indices: BTreeMap<(&RoleName, Generation), Vec<u32>> = BTreeMap::new();
    let mut roles: BTreeMap<&RoleName, BTreeMap<u32, Arc<ServiceSpec>>> = BTreeMap::new();
    for replica in replicas {
        let (role, generation) = (&replica.name.role, replica.name.generation);
        indices
            .entry((role, generation))
            .or_default()
            .push(replica.name.index);
        let specs = roles.entry(role).or_default();
        specs.insert(generation.0, Arc::clone(&replica.spec));
    }
    let assignments = indices.into_iter().map(|((role, generation), indices)| {
        ScaleAssignment::new(role.as_str(), indices).with_generation(generation.0)
    });
    let specs = roles.values().next().cloned().unwrap_or_default();
    let newest = specs.last_key_value().map(|(_, spec)| Arc::clone(spec));
    let role_specs = match roles.len() {
        0 | 1 => BTreeMap::new(),
        _ => roles
            .into_iter()
            .map(|(role, specs)| (role.to_string(), RoleSpecs(specs)))
            .collect(),
    };
    WorkerAssignmentEvent::Set {
        service: service.service.to_string(),
        assignments: assignments.collect(),
        revision,
        deployment: deployment_on_wire(&service.deployment),
        spec: newest,
        specs: if specs.len() > 1 { specs } else { BTreeMap::new() },
        role_specs,
        whole: false,
    }
}
