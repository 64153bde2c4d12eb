//! What the leader wants a node to have: its assignment as scale requests, one for each service.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::assignment::{RoleAssignment, assignment_since};
use dhow_core::ids::{NodeId, ServiceKey};
use dhow_core::state::{Service, State};
use dhow_wire::names::deployment_on_wire;
use dhow_wire::{InternalScaleRequest, ScaleAssignment};

/// A request for each service that the node is to run something of.
pub(super) fn wanted(state: &State, node: NodeId, epoch: u64) -> BTreeMap<ServiceKey, InternalScaleRequest> {
    let services = assignment_since(state, node, None).map(|assignment| assignment.services);
    let services = services.into_iter().flatten().filter_map(|(key, roles)| {
        let service = state.service_named(&key.deployment, &key.service)?;
        let request = request(service, &roles, epoch)?;
        Some((key, request))
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

/// Specs are by generation and as the file has them: the receiver takes each role's part by itself.
fn request(service: &Service, roles: &[RoleAssignment], epoch: u64) -> Option<InternalScaleRequest> {
    let (mut specs, mut next) = (BTreeMap::new(), BTreeMap::new());
    let assignments = roles.iter().map(|alike| {
        let info = service.info(alike.generation)?;
        specs.insert(alike.generation.0, Arc::clone(&info.spec));
        let tries = info.next.as_ref().filter(|_| alike.next.is_some());
        next.extend(tries.map(|settings| (settings.id.0, Arc::clone(&settings.spec))));
        let assignment = ScaleAssignment::new(alike.role.as_str(), alike.indices.clone());
        Some(
            assignment
                .with_generation(alike.generation.0)
                .with_tries(tries.map(|settings| settings.id.0)),
        )
    });
    let assignments = assignments.collect::<Option<Vec<_>>>()?;
    let newest = specs.last_key_value().map(|(_, spec)| spec.as_ref().clone())?;
    let request = InternalScaleRequest::with_assignments(service.key.service.as_str(), assignments)
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
