//! The planner's commands. What a plan read is checked again: unrelated traffic never makes a plan stale, and
//! a stale one changes nothing.

use std::sync::Arc;

use imbl::OrdSet;

use super::{VOLUMES_LEVEL, files, places, replicas, rollout, runs, scaling, service, settings, stages};
use crate::change::{
    Change, ChangeSink, DeploymentChange, NodeChange, ReplicaChange, ServiceChange, StopCause,
};
use crate::command::{Missing, Outcome, Placement, PlanCommand, Refused, Stale, StopReason};
use crate::ids::{Generation, NodeId, ReplicaKey, ServiceId, SettingsId};
use crate::replica::ReplicaState;
use crate::spec::{NodeMode, RType};
use crate::state::{Drain, FailedOn, Node, Phase, Service, State, Wanted};

pub(super) fn apply(
    state: &mut State,
    command: &PlanCommand,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    match command {
        PlanCommand::Place {
            service,
            generation,
            placements,
        } => return place(state, *service, *generation, placements, sink),
        PlanCommand::Stop {
            service,
            generation,
            replicas,
            why,
        } => {
            targeted(state, *service, *generation)?;
            stop(state, *service, replicas, *why, sink)?;
        }
        PlanCommand::Forget { replicas } => forget(state, replicas, sink),
        PlanCommand::ForgetService { service } => forget_service(state, *service, sink)?,
        PlanCommand::OpenGeneration { service, generation } => {
            open_generation(state, *service, *generation, sink)?;
        }
        PlanCommand::Release {
            service,
            generation,
            without,
        } => release(state, (*service, *generation), without.as_ref(), sink)?,
        PlanCommand::MarkStable { deployment, revision } => {
            return rollout::mark_stable(state, deployment, *revision, sink);
        }
        PlanCommand::Fail {
            deployment,
            revision,
            service,
            cause,
            of_version,
        } => {
            let failure = rollout::Failure::of(*service, cause, *of_version);
            return rollout::fail(state, deployment, *revision, &failure, sink);
        }
        PlanCommand::DrainFinished { node } => drain_finished(state, *node, sink)?,
        PlanCommand::CronFired { service, .. } => cron_fired(state, *service, command, sink)?,
        PlanCommand::Job(command) => return runs::apply(state, command, sink),
        PlanCommand::TrySettings {
            service,
            generation,
            settings,
            replicas,
        } => begin_settings(state, (*service, *generation), *settings, replicas, sink)?,
        PlanCommand::AdoptSettings {
            service,
            generation,
            settings,
        } => adopt_settings(state, (*service, *generation), *settings, sink)?,
        PlanCommand::JudgeCanary {
            service,
            generation,
            judgement,
        } => return stages::judged(state, (*service, *generation), judgement, sink),
        PlanCommand::Resize {
            service,
            generation,
            resize,
        } => return scaling::resize(state, (*service, *generation), resize, sink),
    }
    Ok(Outcome::Done)
}

/// Has settings count, if the plan still speaks of the service's target.
fn adopt_settings(
    state: &mut State,
    (id, generation): (ServiceId, Generation),
    settings: SettingsId,
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    targeted(state, id, generation)?;
    settings::adopt(state, id, settings, sink)
}

/// Has replicas try settings, if the plan still speaks of the service's target.
fn begin_settings(
    state: &mut State,
    (id, generation): (ServiceId, Generation),
    settings: SettingsId,
    replicas: &[ReplicaKey],
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    targeted(state, id, generation)?;
    settings::begin(state, id, settings, replicas, sink)
}

/// A new generation of the same template.
fn open_generation(
    state: &mut State,
    id: ServiceId,
    generation: Generation,
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    targeted(state, id, generation)?;
    service::reopen(state, id);
    sink.tell(state, Change::Service(id, ServiceChange::GenerationOpened));
    Ok(())
}

/// Lets a service start.
fn release(
    state: &mut State,
    (id, generation): (ServiceId, Generation),
    without: Option<&Arc<str>>,
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    targeted(state, id, generation)?;
    let now = state.time;
    if let Some(service) = replicas::service_mut(state, id) {
        service.released = true;
        service.asked = now;
        service.progressed = now;
    }
    sink.tell(state, Change::Service(id, ServiceChange::Released { without }));
    Ok(())
}

/// The service, if the plan still speaks of its present target.
fn targeted(state: &State, id: ServiceId, generation: Generation) -> Result<Arc<Service>, Refused> {
    let service = state.service(id).ok_or(Missing::ServiceId(id))?;
    if service.target != generation {
        return Err(Stale::Generation.into());
    }
    Ok(service.clone())
}

/// The service, if the plan still speaks of what is started of it: the target, and beside a canary the version before.
fn placed(state: &State, id: ServiceId, generation: Generation) -> Result<Arc<Service>, Refused> {
    let service = state.service(id).ok_or(Missing::ServiceId(id))?;
    match service.canary_base() == Some(generation) {
        true => Ok(service.clone()),
        false => targeted(state, id, generation),
    }
}

fn place(
    state: &mut State,
    id: ServiceId,
    generation: Generation,
    placements: &[Placement],
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let service = placed(state, id, generation)?;
    let spec = service.info(generation).map(|info| info.spec.clone());
    let spec = spec.ok_or(Stale::Generation)?;
    if service.spent {
        return Err(Stale::Generation.into());
    }
    let (mut placed, mut left_out) = (0u32, Vec::new());
    let mut bound = Vec::new();
    let mut work = runs::AtWork::of(state, &service);
    let mut admission = places::admission(state, &service, &spec);
    for placement in placements {
        let key = ReplicaKey {
            service: id,
            slot: placement.slot,
            generation,
        };
        let fits = check_placement(state, &service, spec.node_mode, &key, placement)
            .and_then(|()| places::check(state, admission.as_ref(), placement.node));
        if let Err(stale) = fits.and_then(|()| work.begin(&service, placement.slot)) {
            left_out.push((key, placement.node, stale));
            continue;
        }
        replicas::put(state, key, placement.node, spec.node_mode, sink);
        if let Some(admission) = &mut admission
            && let Some(node) = state.node(placement.node)
        {
            admission.count_one(node);
        }
        placed += 1;
        if spec.has_named_storage() && spec.rtype != RType::System {
            bound.push((placement.slot, placement.node));
        }
    }
    if placed == 0
        && let Some((_, _, stale)) = left_out.first()
    {
        return Err((*stale).into());
    }
    let (now, level) = (state.time, state.feature_level);
    if let Some(service) = replicas::service_mut(state, id) {
        service.progressed = now;
        if level >= VOLUMES_LEVEL && spec.rtype == RType::Cron && !bound.is_empty() {
            // Each run has slots of its own, and all of them the node of the newest.
            service.volumes.clear();
        }
        service.volumes.extend(bound);
    }
    for (key, node, stale) in &left_out {
        sink.tell(
            state,
            Change::Replica(*key, *node, ReplicaChange::LeftOut(*stale)),
        );
    }
    let left_out = left_out
        .into_iter()
        .map(|(key, _, stale)| (key.slot, stale))
        .collect();
    Ok(Outcome::Placed { placed, left_out })
}

fn check_placement(
    state: &State,
    service: &Service,
    mode: NodeMode,
    key: &ReplicaKey,
    placement: &Placement,
) -> Result<(), Stale> {
    let wanted = match service.rtype() {
        RType::Service | RType::Job | RType::Cron => service.wants(key.slot),
        RType::System => !service.is_off(),
    };
    if !wanted {
        return Err(Stale::SlotUnwanted);
    }
    if service.is_done(key.slot) || is_slot_taken(state, service, key) {
        return Err(Stale::SlotTaken);
    }
    if state
        .volume_home(service, key.slot)
        .is_some_and(|node| node != placement.node)
    {
        return Err(Stale::VolumeElsewhere);
    }
    let node = state.node(placement.node).ok_or(Stale::NodeGone)?;
    if node.eligibility != placement.eligibility || !node.is_open() {
        return Err(Stale::NodeChanged);
    }
    if !is_shareable(state, node, service.id, mode) {
        return Err(Stale::Occupied);
    }
    let free = node.info.capacity.minus(node.used);
    if !free.covers(service.demand(key.generation, key.slot.role)) {
        return Err(Stale::NoRoom);
    }
    Ok(())
}

/// A slot is open for a new replica where none of the target's template serves it, the one that does is on
/// a lost node, or it is about to leave a node that drains.
fn is_slot_taken(state: &State, service: &Service, key: &ReplicaKey) -> bool {
    let first = ReplicaKey {
        generation: Generation(0),
        ..*key
    };
    let last = ReplicaKey {
        generation: Generation(u32::MAX),
        ..*key
    };
    state.replicas.range(first..=last).any(|(other, replica)| {
        if other == key {
            return true;
        }
        let lost = replica.machine.state == ReplicaState::Lost && replica.wanted == Wanted::Run;
        let leaving =
            replica.moves_to.is_some() || state.node(replica.node).is_none_or(|node| node.is_draining());
        // A canary and the version beside it may both have the slot.
        let alike = service.is_current(other.generation) == service.is_current(key.generation);
        alike && replica.wanted == Wanted::Run && !lost && !leaving
    })
}

/// Whether the node's present replicas and the new one bear each other.
fn is_shareable(state: &State, node: &Node, service: ServiceId, mode: NodeMode) -> bool {
    let others_closed = match node.taken {
        Some(taken) => taken.service != service || taken.mode == NodeMode::Exclusive,
        None => false,
    };
    if others_closed {
        return false;
    }
    match mode {
        NodeMode::Shared => true,
        NodeMode::Exclusive => node.reserving == 0,
        NodeMode::Dedicated => replicas::tenants(state, node).all(|key| key.service == service),
    }
}

/// Asks replicas to end.
fn stop(
    state: &mut State,
    id: ServiceId,
    keys: &[ReplicaKey],
    why: StopReason,
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    if why == StopReason::FailsThere {
        return move_away(state, id, keys, sink);
    }
    // What a replica has written waits on its node for the one that has its slot later.
    let unbinds = match why {
        StopReason::ScaledDown => state.feature_level < VOLUMES_LEVEL,
        StopReason::Removed => true,
        StopReason::Replaced
        | StopReason::Draining
        | StopReason::NodeLost
        | StopReason::Displaced { .. }
        | StopReason::NodeUnfit
        | StopReason::FailsThere => false,
    };
    for key in keys.iter().filter(|key| key.service == id) {
        let Some(node) = state.replicas.get(key).map(|replica| replica.node) else {
            continue;
        };
        if let Some(message) = displaced(state, why) {
            replicas::update(state, key, |replica| replica.machine.message = Some(message));
        }
        sink.tell(
            state,
            Change::Replica(*key, node, ReplicaChange::StopAsked(StopCause::Planned(why))),
        );
        replicas::stop(state, key, sink);
        if unbinds && let Some(service) = replicas::service_mut(state, id) {
            service.volumes.remove(&key.slot);
        }
    }
    Ok(())
}

/// Who displaced a replica, in words for people. Servers before level 2 note nothing of it.
fn displaced(state: &State, why: StopReason) -> Option<Arc<str>> {
    let StopReason::Displaced { by } = why else {
        return None;
    };
    let by = state.service(by).filter(|_| state.feature_level >= 2)?;
    let priority = by.spec()?.priority;
    Some(format!("it made room for `{}`, which has priority {priority}", by.key).into())
}

/// Ends replicas that keep failing where they are, and remembers where that was. One that is healthy by now stays.
fn move_away(
    state: &mut State,
    id: ServiceId,
    keys: &[ReplicaKey],
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    super::needs_level(state, 2)?;
    let now = state.time;
    for key in keys.iter().filter(|key| key.service == id) {
        let Some(replica) = state.replicas.get(key) else {
            continue;
        };
        if replica.is_healthy() || replica.wanted == Wanted::Stop {
            continue;
        }
        let node = replica.node;
        if let Some(service) = replicas::service_mut(state, id)
            && let Some(template) = service.info(key.generation).map(|info| info.template)
        {
            let kept = service.failed_on.iter().filter(|failed| failed.is_recent(now));
            let mut kept: imbl::Vector<FailedOn> = kept.copied().collect();
            kept.push_back(FailedOn {
                slot: key.slot,
                node,
                template,
                at: now,
            });
            while kept.len() > State::FAILED_ON_MAX {
                kept.pop_front();
            }
            service.failed_on = kept;
        }
        let why = StopCause::Planned(StopReason::FailsThere);
        sink.tell(state, Change::Replica(*key, node, ReplicaChange::StopAsked(why)));
        replicas::stop(state, key, sink);
    }
    Ok(())
}

/// Drops records of what has ended; what has not is left alone.
fn forget(state: &mut State, keys: &[ReplicaKey], sink: &mut dyn ChangeSink) {
    for key in keys {
        if state
            .replicas
            .get(key)
            .is_some_and(|replica| replica.machine.state.is_ended())
        {
            replicas::give_up(state, key, sink);
        }
    }
}

fn forget_service(state: &mut State, id: ServiceId, sink: &mut dyn ChangeSink) -> Result<(), Refused> {
    let service = state.service(id).ok_or(Missing::ServiceId(id))?.clone();
    if !service.removing || state.replicas_of(id).next().is_some() {
        return Err(Refused::NotNow("the service still has replicas"));
    }
    sink.tell(state, Change::Service(id, ServiceChange::Removed));
    state.services.remove(&id);
    state.service_ids.remove(&service.key);
    let name = &service.key.deployment;
    if let Some(deployment) = state.deployments.get_mut(name) {
        let deployment = Arc::make_mut(deployment);
        deployment.services.remove(&service.key.service);
        if deployment.phase == Phase::Removing && deployment.services.is_empty() {
            sink.tell(state, Change::Deployment(name, DeploymentChange::Removed));
            state.deployments.remove(name);
        }
    }
    files::sweep(state, name);
    files::forget_unused(state);
    Ok(())
}

fn drain_finished(state: &mut State, id: NodeId, sink: &mut dyn ChangeSink) -> Result<(), Refused> {
    let revision = state.revision;
    let cleared = state.node(id).is_some_and(|node| state.is_cleared(node));
    let node = replicas::node_mut(state, id).ok_or(Missing::Node(id))?;
    match node.drain {
        Drain::Draining { shutdown } if cleared => {
            node.drain = Drain::Drained { shutdown };
            node.eligibility = revision;
            let drain = node.drain;
            sink.tell(state, Change::Node(id, NodeChange::Drain(drain)));
            Ok(())
        }
        Drain::Draining { .. } => Err(Refused::NotNow("the node still has replicas")),
        Drain::No | Drain::Drained { .. } => Err(Stale::NodeChanged.into()),
    }
}

/// Starts a run of a cron service, unless the last one is still under way.
fn cron_fired(
    state: &mut State,
    id: ServiceId,
    command: &PlanCommand,
    sink: &mut dyn ChangeSink,
) -> Result<(), Refused> {
    let service = state.service(id).ok_or(Missing::ServiceId(id))?.clone();
    if service.is_off() || service.rtype() != RType::Cron {
        return Err(Stale::SlotUnwanted.into());
    }
    if !service.runs.is_empty() {
        return Err(Refused::NotNow(
            "the runs of this schedule are begun otherwise by now",
        ));
    }
    if state.has_run_under_way(&service) {
        return Err(Refused::NotNow("the last run of this schedule has not ended"));
    }
    let done: Vec<ReplicaKey> = state.replicas_of(id).map(|(key, _)| *key).collect();
    for key in done {
        replicas::retire(state, &key, sink);
    }
    let Some(spec) = service.spec().cloned() else {
        return Ok(());
    };
    let now = state.time;
    if let Some(service) = replicas::service_mut(state, id) {
        let width = service.counts.iter().copied().max().unwrap_or(0);
        service.cron_base = service.cron_base.checked_add(width).unwrap_or(0);
        service.cron_runs = service.cron_runs.saturating_add(1);
        service.done = OrdSet::new();
        service.counts = service
            .roles
            .iter()
            .map(|role| spec.desired_at_first(role))
            .collect();
        service.asked = now;
        service.progressed = now;
    }
    if let PlanCommand::CronFired {
        scheduled_unix_secs, ..
    } = *command
    {
        let fired = ServiceChange::CronFired { scheduled_unix_secs };
        sink.tell(state, Change::Service(id, fired));
    }
    Ok(())
}
