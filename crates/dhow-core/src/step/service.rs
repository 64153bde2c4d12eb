//! Turns a service towards a spec: its roles, its counts and its target generation.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};

use super::scaled::{self, Scaled};
use super::{files, jobs, replicas, runs, scaling, settings, stages};
use crate::amount::Amount;
use crate::change::{Change, ChangeSink, NodeChange};
use crate::ids::{
    DeploymentName, Generation, NodeId, ReplicaKey, RoleName, ServiceId, ServiceKey, ServiceName, SettingsId,
    Slot, Template,
};
use crate::replica::ReplicaState;
use crate::spec::{RType, ScaleSpec, ServiceSpec};
use crate::state::{DueTimes, GenerationInfo, NextSettings, Replica, Rollout, Service, Stage, State, Wanted};

/// What came of turning a service.
pub(super) struct Turned {
    pub id: ServiceId,
    /// It is new, or runs something that nothing of it runs yet.
    pub anew: bool,
}

/// Makes the service if it is new, and points it at `spec`.
pub(super) fn turn(
    state: &mut State,
    deployment: &DeploymentName,
    name: &ServiceName,
    (spec, scaled, is_tried): (&Arc<ServiceSpec>, &Scaled, bool),
    sink: &mut dyn ChangeSink,
) -> Turned {
    let key = ServiceKey {
        deployment: deployment.clone(),
        service: name.clone(),
    };
    let (id, is_new) = match state.service_ids.get(&key) {
        Some(id) => (*id, false),
        None => (make(state, key, spec), true),
    };
    let (now, level) = (state.time, state.feature_level);
    let bears = state.replicas_of(id).any(|(_, replica)| bears_settings(replica));
    let running: BTreeSet<Generation> = state
        .replicas_of(id)
        .filter(|(_, replica)| replica.wanted == Wanted::Run)
        .map(|(key, _)| key.generation)
        .collect();
    let is_tried = is_tried && !running.is_empty();
    let Some(service) = replicas::service_mut(state, id) else {
        return Turned { id, anew: is_new };
    };
    let template = service.next_template;
    if level >= super::rollout::PROGRESS_LEVEL {
        // What nobody has waited for until now is not late.
        service.progressed = now;
    }
    service.removing = false;
    service.held = false;
    service.roles = roles_for(&service.roles, spec);
    let counts = counts_for(&service.roles, spec, Some(service));
    let mut counts = scaled::over(scaled, name, &service.roles, spec, counts);
    runs::turned(service, spec);
    if level >= jobs::SINCE_LEVEL && spec.rtype == RType::Cron && service.rtype() != RType::Cron {
        // What it ran before was no run of the schedule.
        counts = service.roles.iter().map(|_| 0).collect();
    }
    if counts != service.counts {
        set_counts(service, counts, now);
    }
    begin_late_anew(service, now);
    let asked = Asked {
        spec,
        level,
        bears,
        is_tried,
        running,
    };
    let heard = retarget(service, &asked, now);
    scaling::turned(service, template, now);
    let anew = is_new || service.next_template != template;
    touch_nodes(state, id, heard, sink);
    Turned { id, anew }
}

/// A job that was ended by its deadline is to be done after all, and has its time anew.
fn begin_late_anew(service: &mut Service, now: crate::time::ClusterTime) {
    if service.late.take().is_some() {
        service.asked = now;
    }
}

/// Asks for other counts from now on.
pub(super) fn set_counts(service: &mut Service, counts: Arc<[u32]>, now: crate::time::ClusterTime) {
    service.counts = counts;
    service.late = None;
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
        generations: OrdMap::unit(generation, Arc::new(info(template, spec, None, &roles))),
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
        settings: SettingsId::default(),
        runs: Vector::new(),
        due_times: DueTimes::default(),
        late: None,
        rollout: None,
        shunned_by: Vector::new(),
        stopped: None,
        scaling: None,
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
    let is_held = known
        .and_then(|known| known.scaling.as_ref())
        .is_some_and(|scaling| scaling.hold.is_some());
    let scaled = |place: usize, role: &RoleName| match (&spec.scale, before) {
        (ScaleSpec::Manual {}, Some(ScaleSpec::Manual {})) => kept(place),
        // What a person holds is theirs, also beyond the limits.
        (ScaleSpec::Adaptive { .. }, Some(ScaleSpec::Adaptive { .. })) if is_held => kept(place),
        // `default` is the one role that counts; others are left over from groups.
        // Nor does one that becomes adaptive begin with the least: it may have much to do.
        (ScaleSpec::Adaptive { min, max, .. }, Some(_)) if *role == RoleName::fallback() => {
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

pub(super) fn info(
    template: Template,
    spec: &Arc<ServiceSpec>,
    next: Option<NextSettings>,
    roles: &[RoleName],
) -> GenerationInfo {
    let demands = roles
        .iter()
        .map(|role| Amount::from(spec.resources_of(role)))
        .collect();
    GenerationInfo {
        template,
        spec: spec.clone(),
        demands,
        next,
    }
}

/// Whether a replica goes on under the settings that count. One that was lost out of sight may.
fn bears_settings(replica: &Replica) -> bool {
    let runs = replica.is_running() && replica.machine.failures == 0;
    replica.is_healthy() || runs || replica.machine.state == ReplicaState::Lost
}

/// What a service is turned towards.
struct Asked<'a> {
    spec: &'a Arc<ServiceSpec>,
    /// The cluster's feature level.
    level: u32,
    /// Whether a replica of the service bears the settings that count: then changed ones are tried before they do.
    bears: bool,
    /// Whether it is new and runs, so that some of it may be tried beside what runs.
    is_tried: bool,
    /// The generations of its replicas that are to run.
    running: BTreeSet<Generation>,
}

/// Which nodes must hear of a change although they keep their replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Nobody,
    /// Those whose replicas were told to try these settings, which are others now or none.
    Trying(SettingsId),
    /// Those with replicas of what runs now.
    Current,
}

/// Sets the target. Answers which nodes must hear of it although they keep their replicas.
fn retarget(service: &mut Service, asked: &Asked<'_>, now: crate::time::ClusterTime) -> Heard {
    let Asked { spec, level, .. } = *asked;
    let Some(target) = service.target_info().cloned() else {
        return Heard::Nobody;
    };
    let as_asked = target.spec == *spec && target.next.is_none();
    if as_asked && target.demands.len() == service.roles.len() {
        return Heard::Nobody;
    }
    if !target.spec.rolls_into_at(spec, level) {
        return resettle(service, &target, asked);
    }
    // What an older generation runs may be just this: then its replicas count, as after a revert.
    let mut generations = service.generations.values().rev();
    let same = generations
        .find(|known| !known.spec.rolls_into_at(spec, level))
        .cloned();
    let mut heard = Heard::Nobody;
    let before = service.rollout.take();
    // What nothing of it runs any more is as new as if nobody had known it.
    let mut known = service.generations.iter();
    let runs = same.as_ref().is_some_and(|same| {
        known.any(|(generation, info)| info.template == same.template && asked.running.contains(generation))
    });
    if !runs && asked.wants_canary() && service.count_total() > 0 {
        let base = add_base(service, before.as_ref(), &target);
        service.rollout = Some(Rollout::canary(base));
    }
    match same {
        Some(known) if level >= settings::SINCE_LEVEL => {
            heard = resettle(service, &known, asked);
            let mut generations = service.generations.values().rev();
            let settled = generations.find(|info| info.template == known.template);
            let settled = settled.cloned().unwrap_or(known);
            add_generation(service, settled.template, &settled.spec, settled.next.clone());
        }
        Some(known) => add_generation(service, known.template, spec, None),
        None => {
            let template = service.next_template;
            service.next_template = template.next();
            service.released = spec.depends.is_empty();
            add_generation(service, template, spec, None);
        }
    }
    service.done = OrdSet::new();
    service.rolling = true;
    service.asked = now;
    service.progressed = now;
    heard
}

impl Asked<'_> {
    fn wants_canary(&self) -> bool {
        let is_known = self.level >= stages::SINCE_LEVEL;
        is_known && self.is_tried && self.spec.rtype == RType::Service && self.spec.rollout.canary > 0
    }
}

/// A generation in which the version before is started anew where it is missing, while a canary of another one is tried.
/// A canary that is given up for the next one was never more than that: the version before it stays.
fn add_base(service: &mut Service, before: Option<&Rollout>, target: &Arc<GenerationInfo>) -> Generation {
    let known = before.and_then(|rollout| match rollout.stage {
        Stage::Canary { base } => service.info(base).cloned(),
        Stage::Spread => None,
    });
    let info = known.unwrap_or_else(|| target.clone());
    add_generation(service, info.template, &info.spec, info.next.clone());
    service.target
}

/// Makes another canary of what runs as one: what was counted of the one before says nothing of it.
pub(super) fn try_canary_anew(service: &mut Service, now: crate::time::ClusterTime) {
    let before = service.rollout.clone();
    let Some(target) = service.target_info().cloned() else {
        return;
    };
    if service.canary_base().is_none() {
        return;
    }
    let base = add_base(service, before.as_ref(), &target);
    add_generation(service, target.template, &target.spec, target.next.clone());
    if let Some(rollout) = &mut service.rollout {
        rollout.stage = Stage::Canary { base };
        rollout.tried_anew = Some(now);
    }
}

/// Gives the replicas of a template another spec that runs the same. Answers which nodes must hear of it. Where all keep
/// failing there is nothing to lose, and maybe nothing that could try: a wrong port or check is mended at once.
fn resettle(service: &mut Service, known: &GenerationInfo, asked: &Asked<'_>) -> Heard {
    let Asked {
        spec, level, bears, ..
    } = *asked;
    let (counts, next) = match level >= settings::SINCE_LEVEL && bears {
        true => settings::of(service, known, spec),
        false => (spec.clone(), None),
    };
    let heard = match &known.next {
        _ if changes_what_nodes_do(&known.spec, &counts, level) => Heard::Current,
        before if *before == next => Heard::Nobody,
        // Servers of the versions before have all nodes hear of it.
        _ if level < files::SINCE_LEVEL => Heard::Current,
        Some(before) => Heard::Trying(before.id),
        // Nobody was told to try anything yet.
        None => Heard::Nobody,
    };
    settings::put(service, known.template, &counts, next);
    heard
}

/// Whether running replicas are treated differently under the new spec.
fn changes_what_nodes_do(old: &ServiceSpec, new: &ServiceSpec, level: u32) -> bool {
    old.health != new.health
        || old.restart != new.restart
        || old.stop != new.stop
        || old.endpoints != new.endpoints
        || old.configs != new.configs
        || old.secrets != new.secrets
        || level >= 2 && (old.no_new_privileges != new.no_new_privileges || old.offline != new.offline)
}

/// Has nodes of a service hear of it again.
pub(super) fn touch_nodes(state: &mut State, id: ServiceId, heard: Heard, sink: &mut dyn ChangeSink) {
    let Some(service) = state.service(id).filter(|_| heard != Heard::Nobody) else {
        return;
    };
    // Servers of the versions before have all nodes of the service hear of it.
    let all = state.feature_level < files::SINCE_LEVEL;
    let hears = |key: &ReplicaKey, replica: &Replica| {
        let is_current = replica.wanted == Wanted::Run && service.is_current(key.generation);
        match heard {
            Heard::Nobody => false,
            Heard::Trying(settings) => {
                let mut trial = replica.trial.iter();
                is_current && trial.any(|trial| trial.settings == settings)
            }
            Heard::Current => is_current,
        }
    };
    let revision = state.revision;
    let mut nodes: Vec<NodeId> = state
        .replicas_of(id)
        .filter(|(key, replica)| all || hears(key, replica))
        .map(|(_, replica)| replica.node)
        .collect();
    nodes.sort();
    nodes.dedup();
    for node in nodes {
        if let Some(found) = replicas::node_mut(state, node)
            && found.assignments.touch(id, revision)
        {
            sink.tell(state, Change::Node(node, NodeChange::AssignmentChanged));
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
    add_generation(service, template, &target.spec, target.next.clone());
    service.done = OrdSet::new();
    service.late = None;
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
    // The target is always the newest.
    if let Some(base) = service.canary_base().and_then(|base| service.info(base).cloned()) {
        add_generation(service, base.template, &base.spec, base.next.clone());
        let base = service.target;
        if let Some(rollout) = &mut service.rollout {
            rollout.stage = Stage::Canary { base };
        }
    }
    add_generation(service, target.template, &target.spec, target.next.clone());
}

fn add_generation(
    service: &mut Service,
    template: Template,
    spec: &Arc<ServiceSpec>,
    next: Option<NextSettings>,
) {
    service.target = service.target.next();
    service.spent = false;
    let made = info(template, spec, next, &service.roles);
    service.generations.insert(service.target, Arc::new(made));
}

/// Forgets generations that no replica has.
pub(super) fn prune(state: &mut State, id: ServiceId) {
    let used: BTreeSet<Generation> = state.replicas_of(id).map(|(key, _)| key.generation).collect();
    let Some(service) = state.service(id) else { return };
    let (target, base) = (service.target, service.canary_base());
    let is_needed = |generation: &Generation| {
        *generation == target || base == Some(*generation) || used.contains(generation)
    };
    if service.generations.keys().all(is_needed) {
        return;
    }
    if let Some(service) = replicas::service_mut(state, id) {
        crate::maps::retain(&mut service.generations, |generation, _| is_needed(generation));
        let deployment = service.key.deployment.clone();
        files::sweep(state, &deployment);
        files::forget_unused(state);
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
            cold_start: None,
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
        let id = turn(
            &mut state,
            &deployment,
            &name,
            (&adaptive(2, 6), &Scaled::new(), true),
            &mut (),
        )
        .id;
        assert_eq!(counts(&state, id), [2], "at first the least");
        let service = replicas::service_mut(&mut state, id).unwrap();
        set_counts(service, [5].into(), crate::time::ClusterTime(1));
        for (limits, kept) in [((2, 6), 5), ((2, 4), 4), ((6, 9), 6)] {
            let spec = adaptive(limits.0, limits.1);
            turn(
                &mut state,
                &deployment,
                &name,
                (&spec, &Scaled::new(), true),
                &mut (),
            );
            assert_eq!(counts(&state, id), [kept], "{limits:?}");
        }
    }
}
