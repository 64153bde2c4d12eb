//! Settings that change under running replicas: told to one replica after the other, counted when all have passed.

use std::sync::Arc;

use super::{files, replicas, service};
use crate::change::{Change, ChangeSink, NodeChange, ReplicaChange, ServiceChange};
use crate::command::{Missing, Refused, Stale};
use crate::ids::{Generation, ReplicaKey, ServiceId, SettingsId, Template};
use crate::replica::ReplicaEvent;
use crate::spec::{RType, ServiceSpec};
use crate::state::{GenerationInfo, NextSettings, Service, State, Trial, Wanted};

/// The feature level from which on changed settings are tried before they count.
pub(super) const SINCE_LEVEL: u32 = 2;

/// What replicas of `known` are to be treated by when `spec` is asked for, which runs the same: the spec that counts,
/// and the one that is to come where replicas have to prove that they bear it.
pub(super) fn of(
    service: &mut Service,
    known: &GenerationInfo,
    spec: &Arc<ServiceSpec>,
) -> (Arc<ServiceSpec>, Option<NextSettings>) {
    if !is_tried(&known.spec, spec) {
        return (spec.clone(), None);
    }
    // What is not for replicas to prove counts at once.
    let now = ServiceSpec {
        health: known.spec.health.clone(),
        endpoints: known.spec.endpoints.clone(),
        restart: known.spec.restart,
        stop: known.spec.stop.clone(),
        configs: known.spec.configs.clone(),
        secrets: known.spec.secrets.clone(),
        ..spec.as_ref().clone()
    };
    let under_way = known.next.as_ref().filter(|next| !is_tried(&next.spec, spec));
    let id = match under_way {
        Some(next) => next.id,
        None => {
            service.settings = service.settings.next();
            service.settings
        }
    };
    let next = NextSettings {
        id,
        spec: spec.clone(),
    };
    (Arc::new(now), Some(next))
}

/// Whether a running replica could fail by the change. Work that ends by itself has no check to pass.
fn is_tried(old: &ServiceSpec, new: &ServiceSpec) -> bool {
    match new.rtype {
        RType::Job | RType::Cron => false,
        RType::Service | RType::System => {
            let files = old.configs != new.configs || old.secrets != new.secrets;
            old.health != new.health || old.endpoints != new.endpoints || files
        }
    }
}

/// The target's settings that are to come, if the plan still speaks of them.
fn planned(
    state: &State,
    id: ServiceId,
    settings: SettingsId,
) -> Result<(Arc<Service>, NextSettings), Refused> {
    if state.feature_level < SINCE_LEVEL {
        return Err(Refused::FeatureLevel {
            needed: SINCE_LEVEL,
            has: state.feature_level,
        });
    }
    let service = state.service(id).ok_or(Missing::ServiceId(id))?;
    let next = service.target_info().and_then(|info| info.next.as_ref());
    match next.filter(|next| next.id == settings) {
        Some(next) => Ok((service.clone(), next.clone())),
        None => Err(Stale::Settings.into()),
    }
}

/// Tells replicas to try what is to come; those that have begun, or are not of it, are left as they are.
pub(super) fn begin(
    state: &mut State,
    id: ServiceId,
    settings: SettingsId,
    keys: &[ReplicaKey],
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    let (service, _) = planned(state, id, settings)?;
    let (now, revision) = (state.time, state.revision);
    for key in keys.iter().filter(|key| key.service == id) {
        let Some(replica) = state.replicas.get_mut(key) else {
            continue;
        };
        let begun = service.trial(key.generation, replica).is_some();
        if begun || replica.wanted == Wanted::Stop || !service.is_current(key.generation) {
            continue;
        }
        let replica = Arc::make_mut(replica);
        replica.trial = Some(Trial {
            settings,
            began: now,
            passed: None,
            message: None,
        });
        let node = replica.node;
        let found = replicas::node_mut(state, node);
        let is_assigned = found.is_some_and(|found| found.assignments.touch(id, revision));
        sink.tell(state, Change::Replica(*key, node, ReplicaChange::TriesSettings));
        if is_assigned {
            sink.tell(state, Change::Node(node, NodeChange::AssignmentChanged));
        }
    }
    if let Some(service) = replicas::service_mut(state, id) {
        service.progressed = now;
    }
    Ok(())
}

/// What a node says of a trial. Late news of another one changes nothing.
pub(super) fn tried(state: &mut State, key: &ReplicaKey, event: &ReplicaEvent) {
    let (told, failure) = match event {
        ReplicaEvent::SettingsPassed { settings } => (*settings, None),
        ReplicaEvent::SettingsFailed { settings, message } => (*settings, Some(message.clone())),
        ReplicaEvent::PullBegan
        | ReplicaEvent::StartBegan
        | ReplicaEvent::Started { .. }
        | ReplicaEvent::BecameHealthy
        | ReplicaEvent::BecameUnhealthy { .. }
        | ReplicaEvent::RanSteadily
        | ReplicaEvent::Ended { .. }
        | ReplicaEvent::CouldNotStart { .. }
        | ReplicaEvent::StopBegan
        | ReplicaEvent::Adopted { .. }
        | ReplicaEvent::NodeLost => return,
    };
    let now = state.time;
    let passed = failure.is_none();
    let before = silent_before(state, key);
    let mut counted = false;
    replicas::update(state, key, |replica| {
        if let Some(trial) = replica.trial.as_mut().filter(|trial| trial.settings == told) {
            trial.message = failure;
            if passed && trial.passed.is_none() {
                trial.passed = Some(now);
                replica.read = replica.read.or(before);
                counted = true;
            }
        }
    });
    if counted && let Some(service) = replicas::service_mut(state, key.service) {
        service.progressed = now;
    }
}

/// The files that a replica has read, where those that it passes now are others and nothing tells it.
fn silent_before(state: &State, key: &ReplicaKey) -> Option<u64> {
    let info = state.service(key.service)?.info(key.generation)?;
    let (old, new) = (info.spec.silent_files(), info.next.as_ref()?.spec.silent_files());
    (old != new).then_some(old)
}

/// The settings that were to count next count from now on, for every replica of the target's template.
pub(super) fn adopt(
    state: &mut State,
    id: ServiceId,
    settings: SettingsId,
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    let (service, next) = planned(state, id, settings)?;
    let Some(template) = service.target_info().map(|info| info.template) else {
        return Ok(());
    };
    let now = state.time;
    if let Some(service) = replicas::service_mut(state, id) {
        put(service, template, &next.spec, None);
        service.progressed = now;
        let deployment = service.key.deployment.clone();
        files::sweep(state, &deployment);
    }
    sink.tell(state, Change::Service(id, ServiceChange::SettingsAdopted));
    service::touch_nodes(state, id, service::Heard::Current, sink);
    Ok(())
}

/// Gives every generation of a template these settings.
pub(super) fn put(
    service: &mut Service,
    template: Template,
    spec: &Arc<ServiceSpec>,
    next: Option<NextSettings>,
) {
    let made = Arc::new(service::info(template, spec, next, &service.roles));
    let same: Vec<Generation> = service
        .generations
        .iter()
        .filter(|(_, known)| known.template == template)
        .map(|(generation, _)| *generation)
        .collect();
    for generation in same {
        service.generations.insert(generation, made.clone());
    }
}
