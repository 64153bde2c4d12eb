//! What the leader wants a node to have, read off the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::ids::{NodeId, ReplicaKey, ServiceKey};
use dhow_core::state::{Assigned, Service, State};
use dhow_wire::names::deployment_on_wire;
use dhow_wire::{InternalScaleRequest, ScaleAssignment};

/// A request for each service that the node is to run something of.
pub(super) fn wanted(state: &State, node: NodeId, epoch: u64) -> BTreeMap<ServiceKey, InternalScaleRequest> {
    let Some(known) = state.node(node) else {
        return BTreeMap::new();
    };
    let services = known.assignments.services().filter_map(|(id, assigned)| {
        let service = state.service(id)?;
        Some((service.key.clone(), request(state, service, assigned, epoch)?))
    });
    services.collect()
}

/// A request that leaves nothing of a service on the node.
pub(super) fn nothing(key: &ServiceKey, epoch: u64) -> InternalScaleRequest {
    let request = InternalScaleRequest::new(key.service.as_str(), 0).with_epoch(epoch);
    InternalScaleRequest {
        deployment: deployment_on_wire(&key.deployment),
        ..request
    }
}

fn request(
    state: &State,
    service: &Service,
    assigned: &Assigned,
    epoch: u64,
) -> Option<InternalScaleRequest> {
    let mut groups: BTreeMap<(&str, u32, Option<u32>), Vec<u32>> = BTreeMap::new();
    let (mut specs, mut next) = (BTreeMap::new(), BTreeMap::new());
    for replica in &assigned.replicas {
        let role = service.role(replica.slot.role)?;
        let info = service.info(replica.generation)?;
        let generation = replica.generation.0;
        let known = state.replicas.get(&ReplicaKey {
            service: service.id,
            slot: replica.slot,
            generation: replica.generation,
        });
        let trial = known.and_then(|known| service.trial(replica.generation, known));
        let tries = trial.map(|(settings, _)| {
            next.insert(settings.id.0, Arc::clone(&settings.spec));
            settings.id.0
        });
        groups
            .entry((role.as_str(), generation, tries))
            .or_default()
            .push(replica.slot.index);
        specs.entry(generation).or_insert_with(|| Arc::clone(&info.spec));
    }
    let assignments = groups.into_iter().map(|((role, generation, tries), indices)| {
        ScaleAssignment::new(role, indices)
            .with_generation(generation)
            .with_tries(tries)
    });
    let newest = specs.last_key_value().map(|(_, spec)| spec.as_ref().clone())?;
    let request = InternalScaleRequest::with_assignments(service.key.service.as_str(), assignments.collect())
        .with_spec(newest)
        .with_epoch(epoch);
    Some(InternalScaleRequest {
        deployment: deployment_on_wire(&service.key.deployment),
        // One generation is what `spec` says.
        specs: if specs.len() > 1 { specs } else { BTreeMap::new() },
        next,
        ..request
    })
}
