//! What jobs have done, kept so that a revision that is brought back does not do it again.

use std::sync::Arc;

use imbl::OrdSet;

use super::replicas;
use crate::ids::{ReplicaKey, RoleName, ServiceId, Slot};
use crate::spec::{RType, ServiceSpec};
use crate::state::{CompletedWork, Deployment, State, Wanted};

/// The feature level from which on it is kept.
const SINCE_LEVEL: u32 = 2;

/// Notes that a replica has done its work, where it is a job's and was to run.
pub(super) fn note(state: &mut State, key: &ReplicaKey) {
    let done = state
        .replicas
        .get(key)
        .is_some_and(|replica| replica.is_completed() && replica.wanted == Wanted::Run);
    if !done || state.feature_level < SINCE_LEVEL {
        return;
    }
    let Some(service) = state.service(key.service) else {
        return;
    };
    let (Some(info), Some(role)) = (service.info(key.generation), service.role(key.slot.role)) else {
        return;
    };
    if info.spec.rtype != RType::Job {
        return;
    }
    let (spec, replica) = (info.spec.clone(), (role.clone(), key.slot.index));
    let service = service.key.clone();
    let Some(deployment) = state.deployments.get_mut(&service.deployment) else {
        return;
    };
    let known = Arc::make_mut(deployment)
        .completed
        .entry(service.service)
        .or_default();
    if let Some(work) = known.iter_mut().find(|work| work.is_of(&spec)) {
        Arc::make_mut(work).replicas.insert(replica);
        return;
    }
    known.push_back(Arc::new(CompletedWork {
        spec,
        replicas: OrdSet::unit(replica),
    }));
    while known.len() > State::HISTORY_MAX {
        known.pop_front();
    }
}

/// Takes as done what the service has done under its target before.
pub(super) fn bring_back(state: &mut State, deployment: &Deployment, id: ServiceId) {
    if state.feature_level < SINCE_LEVEL {
        return;
    }
    let Some(service) = state.service(id).cloned() else {
        return;
    };
    let Some(spec) = service.spec() else { return };
    let known = deployment.completed.get(&service.key.service);
    let Some(work) = known.and_then(|known| known.iter().find(|work| work.is_of(spec))) else {
        return;
    };
    // One whose replica is still there needs no other word for it.
    let present: OrdSet<Slot> = state
        .replicas_of(id)
        .filter(|(key, replica)| replica.wanted == Wanted::Run && service.is_current(key.generation))
        .map(|(key, _)| key.slot)
        .collect();
    let slot = |(role, index): &(RoleName, u32)| {
        let role = service.role_id(role)?;
        Some(Slot { role, index: *index })
    };
    let done: OrdSet<Slot> = work
        .replicas
        .iter()
        .filter_map(slot)
        .filter(|slot| service.wants(*slot) && !present.contains(slot))
        .collect();
    if let Some(service) = replicas::service_mut(state, id) {
        service.done = service.done.clone().union(done);
    }
}

/// Forgets what was done under a spec: a user asked for it to be done again.
pub(super) fn forget(deployment: &mut Deployment, service: &crate::ids::ServiceName, spec: &ServiceSpec) {
    if let Some(known) = deployment.completed.get_mut(service) {
        known.retain(|work| !work.is_of(spec));
        if known.is_empty() {
            deployment.completed.remove(service);
        }
    }
}
