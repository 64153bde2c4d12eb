//! Rules about several nodes at once, checked again where a plan's placements are applied.

use std::collections::BTreeMap;

use imbl::Vector;

use super::replicas;
use crate::around::{Admission, Around};
use crate::command::{Refused, Stale};
use crate::ids::{NodeId, ServiceId, ServiceName};
use crate::spec::{DeploymentSpec, ServiceSpec};
use crate::state::{Deployment, Service, State};

/// From this level on services have such rules.
pub(crate) const SINCE_LEVEL: u32 = 6;

/// A spec with such rules is refused until all servers know them.
pub(super) fn check_level(state: &State, spec: &DeploymentSpec) -> Result<(), Refused> {
    match spec.needs_placement_rules() || spec.has_restart_intervals() {
        true => super::needs_level(state, SINCE_LEVEL),
        false => Ok(()),
    }
}

/// What placements of the service are checked by; none where nobody has such rules about it.
pub(super) fn admission<'a>(
    state: &State,
    service: &Service,
    spec: &'a ServiceSpec,
) -> Option<Admission<'a>> {
    let is_ruled =
        spec.has_limits_of_places() || spec.affinity.has_neighbours() || !service.shunned_by.is_empty();
    let is_ruled = is_ruled && state.feature_level >= SINCE_LEVEL;
    is_ruled.then(|| Admission::of(state, &Around::of(state, service, spec), spec))
}

pub(super) fn check(state: &State, admission: Option<&Admission<'_>>, node: NodeId) -> Result<(), Stale> {
    let Some(admission) = admission else { return Ok(()) };
    match state.node(node).is_some_and(|node| admission.admits(node)) {
        true => Ok(()),
        false => Err(Stale::RuleBroken),
    }
}

/// Notes with each service who keeps away from it, so that nobody has to look through the deployment for that.
pub(super) fn note_shunned(state: &mut State, deployment: &Deployment, spec: &DeploymentSpec) {
    if state.feature_level < SINCE_LEVEL {
        return;
    }
    let mut shunned: BTreeMap<&ServiceName, Vector<ServiceId>> = BTreeMap::new();
    for (name, service) in &spec.services {
        let Some(id) = deployment.services.get(name) else {
            continue;
        };
        let rules = service.affinity.away_from.iter().filter(|rule| !rule.prefer);
        for rule in rules {
            shunned.entry(&rule.service).or_default().push_back(*id);
        }
    }
    for (name, id) in &deployment.services {
        let by = shunned.remove(name).unwrap_or_default();
        if state.service(*id).is_some_and(|service| service.shunned_by != by)
            && let Some(service) = replicas::service_mut(state, *id)
        {
            service.shunned_by = by;
        }
    }
}
