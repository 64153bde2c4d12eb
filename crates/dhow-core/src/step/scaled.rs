//! Counts that people asked for by a scale. A file has the last word about them; a revision that is only brought back,
//! by a revert or a rollback, has not.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{RoleName, ServiceName};
use crate::spec::{DeploymentSpec, RType, ScaleSpec, ServiceSpec};
use crate::state::{Deployment, Service, State};

/// The feature level from which on they are kept.
const SINCE_LEVEL: u32 = 2;

/// Counts by service and role.
pub(super) type Scaled = BTreeMap<ServiceName, BTreeMap<RoleName, u32>>;

/// Notes what the current revision is scaled to, before another one takes its place.
pub(super) fn note(state: &State, deployment: &mut Deployment) {
    let scaled = of_current(state, deployment);
    let Some(record) = deployment.history.get_mut(&deployment.revision) else {
        return;
    };
    if record.spec.scaled != scaled {
        let record = Arc::make_mut(record);
        Arc::make_mut(&mut record.spec).scaled = scaled;
    }
}

/// What a revision asked for by itself.
pub(super) fn as_written(recorded: &Arc<DeploymentSpec>) -> Arc<DeploymentSpec> {
    let mut spec = recorded.clone();
    if !spec.scaled.is_empty() {
        Arc::make_mut(&mut spec).scaled.clear();
    }
    spec
}

/// What counts when a deployment goes back to a revision: the numbers that users asked for since the current one began,
/// then those that the other one was scaled to.
pub(super) fn kept(state: &State, deployment: &Deployment, back: &DeploymentSpec) -> Scaled {
    let mut scaled = back.scaled.clone();
    for (service, roles) in of_current(state, deployment) {
        scaled.entry(service).or_default().extend(roles);
    }
    scaled
}

/// The counts of the current revision that are not what it asked for by itself. What a scaler decides is its own
/// affair.
fn of_current(state: &State, deployment: &Deployment) -> Scaled {
    let mut scaled = Scaled::new();
    let Some(record) = deployment.current() else {
        return scaled;
    };
    if state.feature_level < SINCE_LEVEL {
        return scaled;
    }
    for (name, spec) in record.spec.services.iter().filter(|(_, spec)| takes(spec)) {
        let service = state.service_named(&deployment.name, name);
        let Some(service) = service.filter(|service| !service.removing) else {
            continue;
        };
        let roles = of_service(service, spec);
        if !roles.is_empty() {
            scaled.insert(name.clone(), roles);
        }
    }
    scaled
}

fn of_service(service: &Service, spec: &ServiceSpec) -> BTreeMap<RoleName, u32> {
    let roles = spec.roles().into_iter().filter_map(|role| {
        let count = service.count(service.role_id(&role)?);
        (count != spec.desired_at_first(&role)).then_some((role, count))
    });
    roles.collect()
}

/// Whether people say by a scale how many replicas it has.
fn takes(spec: &ServiceSpec) -> bool {
    let counted = match spec.rtype {
        RType::Service | RType::Job => true,
        RType::Cron | RType::System => false,
    };
    let by_people = match spec.scale {
        ScaleSpec::Fixed { .. } | ScaleSpec::Manual {} => true,
        ScaleSpec::Adaptive { .. } => !spec.replica_groups.is_empty(),
    };
    counted && by_people
}

/// The counts of a service, with those that people asked for in place of the spec's.
pub(super) fn over(
    scaled: &Scaled,
    name: &ServiceName,
    roles: &[RoleName],
    spec: &ServiceSpec,
    counts: Arc<[u32]>,
) -> Arc<[u32]> {
    let Some(asked) = scaled.get(name).filter(|_| takes(spec)) else {
        return counts;
    };
    let known = spec.roles();
    let places = roles.iter().zip(counts.iter());
    places
        .map(|(role, count)| match asked.get(role) {
            Some(asked) if known.contains(role) => *asked,
            Some(_) | None => *count,
        })
        .collect()
}
