//! What people stop and start again. A stop is remembered: nothing but a start, a restart or a deploy by people ends it.

use std::sync::Arc;

use super::deployment::{present, service_in};
use super::{replicas, rollout, runs};
use crate::change::{Change, ChangeSink, DeploymentChange};
use crate::command::{DeploymentCommand, Outcome, Refused};
use crate::ids::{DeploymentName, ServiceId, ServiceName};
use crate::state::{Deployment, Phase, Service, State, Stopped};

/// From this level on.
pub(crate) const SINCE_LEVEL: u32 = 6;

/// The services that are named, as far as they are stopped or are not.
fn named(
    state: &State,
    deployment: &Deployment,
    only: Option<&ServiceName>,
    is_stopped: bool,
) -> Result<Vec<ServiceId>, Refused> {
    let ids = match only {
        Some(service) => vec![service_in(state, deployment, service)?],
        None => deployment.services.values().copied().collect(),
    };
    let is_meant = |service: &Arc<Service>| !service.removing && service.stopped.is_some() == is_stopped;
    let meant = ids
        .into_iter()
        .filter(|id| state.service(*id).is_some_and(is_meant));
    Ok(meant.collect())
}

pub(super) fn apply(
    state: &mut State,
    command: &DeploymentCommand,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    match command {
        DeploymentCommand::Stop {
            deployment,
            service,
            author,
            wall_unix_secs,
        } => stop(
            state,
            deployment,
            service.as_ref(),
            (author, *wall_unix_secs),
            sink,
        ),
        DeploymentCommand::Start {
            deployment,
            service,
            author,
            wall_unix_secs,
        } => start(
            state,
            deployment,
            service.as_ref(),
            (author, *wall_unix_secs),
            sink,
        ),
        DeploymentCommand::Deploy { .. }
        | DeploymentCommand::Remove { .. }
        | DeploymentCommand::Scale { .. }
        | DeploymentCommand::Restart { .. }
        | DeploymentCommand::Rollback { .. }
        | DeploymentCommand::ApplyManifests { .. }
        | DeploymentCommand::RecordConflicted { .. }
        | DeploymentCommand::StartRun { .. }
        | DeploymentCommand::Steer { .. }
        | DeploymentCommand::BindVolume { .. }
        | DeploymentCommand::Rebalance { .. }
        | DeploymentCommand::Hold { .. }
        | DeploymentCommand::EndHold { .. }
        | DeploymentCommand::Suspending { .. } => Ok(Outcome::Done),
    }
}

/// Ends what runs, and keeps the rest as it is. A rollout that is under way waits until it is started again.
fn stop(
    state: &mut State,
    name: &DeploymentName,
    only: Option<&ServiceName>,
    (author, wall_unix_secs): (&Arc<str>, i64),
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    super::needs_level(state, SINCE_LEVEL)?;
    let deployment = present(state, name)?.clone();
    let ids = named(state, &deployment, only, false)?;
    let changed = !ids.is_empty();
    if changed {
        let service = only;
        let change = DeploymentChange::StopAsked { service, author };
        sink.tell(state, Change::Deployment(name, change));
    }
    let stopped = Stopped {
        at: state.time,
        wall_unix_secs,
        by: author.clone(),
    };
    for id in ids {
        if let Some(service) = replicas::service_mut(state, id) {
            service.stopped = Some(stopped.clone());
        }
        runs::end_all(state, id, sink);
    }
    Ok(Outcome::Deployed {
        revision: deployment.revision,
        changed,
    })
}

/// Runs again what is stopped, in the order of what it depends on.
fn start(
    state: &mut State,
    name: &DeploymentName,
    only: Option<&ServiceName>,
    (author, wall_unix_secs): (&Arc<str>, i64),
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    super::needs_level(state, SINCE_LEVEL)?;
    let deployment = present(state, name)?.clone();
    let ids = named(state, &deployment, only, true)?;
    let changed = !ids.is_empty();
    for id in ids {
        begin(state, id, wall_unix_secs);
    }
    if changed {
        wait_anew(state, &deployment);
        match deployment.phase {
            // Its rollout goes on.
            Phase::Deploying | Phase::Reverting => {}
            Phase::Stable | Phase::Reverted | Phase::Failed | Phase::RevertFailed | Phase::Removing => {
                rollout::begin_again(state, name);
            }
        }
        let service = only;
        let change = DeploymentChange::StartAsked { service, author };
        sink.tell(state, Change::Deployment(name, change));
    }
    Ok(Outcome::Deployed {
        revision: deployment.revision,
        changed,
    })
}

/// People have deployed just what there is: what is stopped of it is to run.
pub(super) fn start_unchanged(
    state: &mut State,
    known: &Deployment,
    by_people: Option<(&Arc<str>, i64)>,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    match by_people.filter(|_| is_any(state, known)) {
        Some(by) => start(state, &known.name, None, by, sink),
        None => Ok(Outcome::Deployed {
            revision: known.revision,
            changed: false,
        }),
    }
}

/// Whether something of it is stopped.
fn is_any(state: &State, deployment: &Deployment) -> bool {
    let mut services = deployment.services.values();
    services.any(|id| {
        state
            .service(*id)
            .is_some_and(|service| service.stopped.is_some())
    })
}

/// What people deploy, at that time, is to run.
pub(super) fn begin_all(state: &mut State, name: &DeploymentName, by_people: Option<i64>) {
    let (Some(deployment), Some(wall_unix_secs)) = (state.deployment(name).cloned(), by_people) else {
        return;
    };
    let stopped = named(state, &deployment, None, true).unwrap_or_default();
    for id in stopped {
        begin(state, id, wall_unix_secs);
    }
}

/// It is not stopped any more.
pub(super) fn forget(state: &mut State, id: ServiceId) {
    let wall_unix_ms = state.clock_marks.wall_unix_ms(state.time);
    let is_stopped = state.service(id).is_some_and(|service| service.stopped.is_some());
    if is_stopped {
        begin(state, id, wall_unix_ms.unwrap_or_default().div_euclid(1_000));
    }
}

fn begin(state: &mut State, id: ServiceId, wall_unix_secs: i64) {
    let now = state.time;
    let Some(service) = replicas::service_mut(state, id) else {
        return;
    };
    service.stopped = None;
    service.asked = now;
    service.progressed = now;
    // What it depends on may have been stopped with it.
    service.released = service.spec().is_none_or(|spec| spec.depends.is_empty());
    if service.spec().is_some_and(|spec| spec.schedule.is_some()) {
        // What was due meanwhile is not made up for.
        service.due_times.settle(wall_unix_secs.saturating_sub(1), None);
    }
}

/// What waits for a service that was stopped has its time anew.
fn wait_anew(state: &mut State, deployment: &Deployment) {
    let now = state.time;
    for id in deployment.services.values() {
        if let Some(service) = replicas::service_mut(state, *id) {
            service.progressed = now;
            if !service.released {
                service.asked = now;
            }
        }
    }
}
