//! Turns a service towards a spec: its roles, its counts and its target generation.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};

use super::replicas;
use crate::amount::Amount;
use crate::ids::{
    DeploymentName, Generation, NodeId, RoleName, ServiceId, ServiceKey, ServiceName, Slot, Template,
};
use crate::spec::{RType, ScaleSpec, ServiceSpec};
use crate::state::{GenerationInfo, Service, State};

/// Makes the service if it is new, and points it at `spec`.
pub(super) fn turn(
    state: &mut State,
    deployment: &DeploymentName,
    name: &ServiceName,
    spec: &Arc<ServiceSpec>,
) -> ServiceId {
    let key = ServiceKey {
        deployment: deployment.clone(),
        service: name.clone(),
    };
    let id = match state.service_ids.get(&key) {
        Some(id) => *id,
        None => make(state, key, spec),
    };
    let (now, level) = (state.time, state.feature_level);
    let Some(service) = replicas::service_mut(state, id) else {
        return id;
    };
    service.removing = false;
    service.held = false;
    service.roles = roles_for(&service.roles, spec);
    let counts = counts_for(&service.roles, spec, Some(service));
    if counts != service.counts {
        set_counts(service, counts, now);
    }
    let touched = retarget(service, spec, now, level);
    if touched {
        touch_nodes(state, id);
    }
    id
}

/// Asks for other counts from now on.
pub(super) fn set_counts(service: &mut Service, counts: Arc<[u32]>, now: crate::time::ClusterTime) {
    service.counts = counts;
    service.asked = now;
    service.progressed = now;
    let unwanted: Vec<Slot> = service
        .done
        .iter()
        .filter(|slot| !service.wants(**slot))
        .copied()
        .collect();
    for slot in unwanted {
        service.done.remove(&slot);
    }
}

fn make(state: &mut State, key: ServiceKey, spec: &Arc<ServiceSpec>) -> ServiceId {
    state.next_service_id = state.next_service_id.next();
    let id = state.next_service_id;
    let roles = roles_for(&[], spec);
    let (generation, template) = (Generation(1), Template(1));
    let service = Service {
        id,
        key: key.clone(),
        counts: counts_for(&roles, spec, None),
        generations: OrdMap::unit(generation, Arc::new(info(template, spec, &roles))),
        roles,
        target: generation,
        spent: false,
        next_template: template.next(),
        released: spec.depends.is_empty(),
        asked: state.time,
        progressed: state.time,
        rolling: false,
        held: false,
        removing: false,
        volumes: OrdMap::new(),
        cron_runs: 0,
        cron_base: 0,
        ended: Vector::new(),
        done: OrdSet::new(),
        failed_on: Vector::new(),
    };
    state.service_ids.insert(key, id);
    state.services.insert(id, Arc::new(service));
    id
}

/// The known roles and, behind them, those that are new.
fn roles_for(known: &[RoleName], spec: &ServiceSpec) -> Arc<[RoleName]> {
    let mut roles = known.to_vec();
    for role in spec.roles() {
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    roles.into()
}

/// How many replicas each role should have under `spec`. Manual counts and a cron service's run stay as
/// they are, and what a scaler decided stays within its limits.
pub(super) fn counts_for(roles: &[RoleName], spec: &ServiceSpec, known: Option<&Service>) -> Arc<[u32]> {
    let kept = |place: usize| {
        known
            .and_then(|known| known.counts.get(place))
            .copied()
            .unwrap_or(0)
    };
    let before = known
        .and_then(|known| known.spec())
        .filter(|before| before.replica_groups.is_empty() && spec.replica_groups.is_empty())
        .map(|before| &before.scale);
    let scaled = |place: usize, role: &RoleName| match (&spec.scale, before) {
        (ScaleSpec::Manual {}, Some(ScaleSpec::Manual {})) => kept(place),
        // `default` is the one role that counts; others are left over from groups.
        (ScaleSpec::Adaptive { min, max, .. }, Some(ScaleSpec::Adaptive { .. }))
            if *role == RoleName::fallback() =>
        {
            kept(place).max(*min).min(*max)
        }
        (ScaleSpec::Fixed { .. } | ScaleSpec::Adaptive { .. } | ScaleSpec::Manual {}, _) => {
            spec.desired_at_first(role)
        }
    };
    roles
        .iter()
        .enumerate()
        .map(|(place, role)| match spec.rtype {
            RType::Service | RType::Job => scaled(place, role),
            RType::Cron => kept(place),
            RType::System => 0,
        })
        .collect()
}

fn info(template: Template, spec: &Arc<ServiceSpec>, roles: &[RoleName]) -> GenerationInfo {
    let demands = roles
        .iter()
        .map(|role| Amount::from(spec.resources_of(role)))
        .collect();
    GenerationInfo {
        template,
        spec: spec.clone(),
        demands,
    }
}

/// Sets the target. Answers whether nodes must hear of it although they keep their replicas.
fn retarget(
    service: &mut Service,
    spec: &Arc<ServiceSpec>,
    now: crate::time::ClusterTime,
    level: u32,
) -> bool {
    let Some(target) = service.target_info().cloned() else {
        return false;
    };
    if target.spec == *spec && target.demands.len() == service.roles.len() {
        return false;
    }
    if !target.spec.rolls_into_at(spec, level) {
        let template = target.template;
        let seen_by_nodes = changes_what_nodes_do(&target.spec, spec, level);
        let roles = service.roles.clone();
        let made = Arc::new(info(template, spec, &roles));
        let same: Vec<Generation> = service
            .generations
            .iter()
            .filter(|(_, known)| known.template == template)
            .map(|(generation, _)| *generation)
            .collect();
        for generation in same {
            service.generations.insert(generation, made.clone());
        }
        return seen_by_nodes;
    }
    // What an older generation runs may be just this: then its replicas count, as after a revert.
    let same = service
        .generations
        .values()
        .rev()
        .find(|known| !known.spec.rolls_into_at(spec, level));
    let template = same.map_or(service.next_template, |known| known.template);
    if template == service.next_template {
        service.next_template = template.next();
        service.released = spec.depends.is_empty();
    }
    add_generation(service, template, spec);
    service.done = OrdSet::new();
    service.rolling = true;
    service.asked = now;
    service.progressed = now;
    false
}

/// Whether running replicas are treated differently under the new spec.
fn changes_what_nodes_do(old: &ServiceSpec, new: &ServiceSpec, level: u32) -> bool {
    old.health != new.health
        || old.restart != new.restart
        || old.stop != new.stop
        || old.endpoints != new.endpoints
        || level >= 2 && old.no_new_privileges != new.no_new_privileges
}

fn touch_nodes(state: &mut State, id: ServiceId) {
    let revision = state.revision;
    let mut nodes: Vec<NodeId> = state.replicas_of(id).map(|(_, replica)| replica.node).collect();
    nodes.sort();
    nodes.dedup();
    for node in nodes {
        if let Some(node) = replicas::node_mut(state, node) {
            node.assignments.touch(id, revision);
        }
    }
}

/// Makes the service's replicas anew: the same spec under a new template.
pub(super) fn renew(state: &mut State, id: ServiceId) {
    let now = state.time;
    let Some(service) = replicas::service_mut(state, id) else {
        return;
    };
    let Some(target) = service.target_info().cloned() else {
        return;
    };
    let template = service.next_template;
    service.next_template = template.next();
    add_generation(service, template, &target.spec);
    service.done = OrdSet::new();
    service.rolling = true;
    service.held = false;
    service.asked = now;
    service.progressed = now;
}

/// A new generation of the same template: what runs stays right, and a slot can have a second replica.
pub(super) fn reopen(state: &mut State, id: ServiceId) {
    prune(state, id);
    let Some(service) = replicas::service_mut(state, id) else {
        return;
    };
    let Some(target) = service.target_info().cloned() else {
        return;
    };
    add_generation(service, target.template, &target.spec);
}

fn add_generation(service: &mut Service, template: Template, spec: &Arc<ServiceSpec>) {
    service.target = service.target.next();
    service.spent = false;
    let made = info(template, spec, &service.roles);
    service.generations.insert(service.target, Arc::new(made));
}

/// Forgets generations that no replica has.
pub(super) fn prune(state: &mut State, id: ServiceId) {
    let used: std::collections::BTreeSet<Generation> =
        state.replicas_of(id).map(|(key, _)| key.generation).collect();
    let Some(service) = state.service(id) else { return };
    let target = service.target;
    if service
        .generations
        .keys()
        .all(|generation| *generation == target || used.contains(generation))
    {
        return;
    }
    if let Some(service) = replicas::service_mut(state, id) {
        crate::maps::retain(&mut service.generations, |generation, _| {
            *generation == target || used.contains(generation)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ScaleTargets;

    fn adaptive(min: u32, max: u32) -> Arc<ServiceSpec> {
        let scale = ScaleSpec::Adaptive {
            min,
            max,
            cooldown: ScaleSpec::default_cooldown(),
            targets: ScaleTargets::default(),
        };
        Arc::new(ServiceSpec {
            scale,
            ..ServiceSpec::default()
        })
    }

    /// Another version of an adaptive service keeps the count that its scaler has come to.
    #[test]
    fn what_a_scaler_decided_stays_within_its_limits() {
        let (deployment, name) = (
            DeploymentName::new("shop").unwrap(),
            ServiceName::new("web").unwrap(),
        );
        let mut state = State::default();
        let counts = |state: &State, id| state.service(id).unwrap().counts.to_vec();
        let id = turn(&mut state, &deployment, &name, &adaptive(2, 6));
        assert_eq!(counts(&state, id), [2], "at first the least");
        let service = replicas::service_mut(&mut state, id).unwrap();
        set_counts(service, [5].into(), crate::time::ClusterTime(1));
        for (limits, kept) in [((2, 6), 5), ((2, 4), 4), ((6, 9), 6)] {
            turn(&mut state, &deployment, &name, &adaptive(limits.0, limits.1));
            assert_eq!(counts(&state, id), [kept], "{limits:?}");
        }
    }
}
