//! How a deployment's revision ends: good, reverted, failed.

use std::sync::Arc;

use super::deployment::{supersede, trim_history, turn_services};
use super::{files, replicas, scaled, service};
use crate::change::{Change, ChangeSink, DeploymentChange};
use crate::command::{Missing, Outcome, Refused, Stale};
use crate::ids::{DeploymentName, DeploymentRevision, ServiceId};
use crate::spec::OnFailure;
use crate::state::{Deployment, Phase, RevisionOutcome, RevisionRecord, State};

/// From this feature level on, every service has its time anew when its deployment has to become stable.
pub(super) const PROGRESS_LEVEL: u32 = 2;

/// A scale or a restart of the current revision: it has to become stable again.
pub(super) fn begin_again(state: &mut State, name: &DeploymentName) {
    let Some(deployment) = state.deployments.get_mut(name) else {
        return;
    };
    let deployment = Arc::make_mut(deployment);
    deployment.phase = Phase::Deploying;
    if state.feature_level < PROGRESS_LEVEL {
        return;
    }
    let (now, services): (_, Vec<ServiceId>) = (state.time, deployment.services.values().copied().collect());
    for id in services {
        if let Some(service) = replicas::service_mut(state, id) {
            service.progressed = now;
        }
    }
}

/// The deployment, if the plan still speaks of its present revision.
fn planned(
    state: &State,
    name: &DeploymentName,
    revision: DeploymentRevision,
) -> Result<Deployment, Refused> {
    let found = state
        .deployment(name)
        .ok_or_else(|| Missing::Deployment(name.clone()))?;
    if found.revision != revision || !found.is_under_way() {
        return Err(Stale::Generation.into());
    }
    Ok(found.as_ref().clone())
}

fn set_outcome(deployment: &mut Deployment, outcome: RevisionOutcome) {
    if let Some(record) = deployment.history.get_mut(&deployment.revision) {
        Arc::make_mut(record).outcome = outcome;
    }
}

pub(super) fn mark_stable(
    state: &mut State,
    name: &DeploymentName,
    revision: DeploymentRevision,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let mut deployment = planned(state, name, revision)?;
    deployment.phase = match deployment.phase {
        Phase::Reverting => Phase::Reverted,
        Phase::Deploying | Phase::Failed | Phase::Stable | Phase::Reverted | Phase::Removing => Phase::Stable,
    };
    set_outcome(&mut deployment, RevisionOutcome::Good);
    deployment.last_good = Some(revision);
    let services: Vec<ServiceId> = deployment.services.values().copied().collect();
    state.deployments.insert(name.clone(), Arc::new(deployment));
    for id in services {
        service::prune(state, id);
        if let Some(service) = replicas::service_mut(state, id)
            && service.rolling
        {
            service.rolling = false;
        }
    }
    files::sweep(state, name);
    files::forget_unused(state);
    sink.tell(
        state,
        Change::Deployment(name, DeploymentChange::Stable { revision }),
    );
    Ok(Outcome::Done)
}

/// Puts the last good revision back, or says that there is none.
pub(super) fn fail(
    state: &mut State,
    name: &DeploymentName,
    revision: DeploymentRevision,
    (failed, cause): (ServiceId, &Arc<str>),
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let mut deployment = planned(state, name, revision)?;
    if deployment.phase == Phase::Failed {
        return Err(Stale::Generation.into());
    }
    let pause = state
        .service(failed)
        .and_then(|service| service.spec())
        .is_some_and(|spec| spec.rollout.on_failure == OnFailure::Pause);
    // Only a revision that was never good is taken back: a scale or a restart has nothing to go back to.
    let rolling = deployment
        .current()
        .is_some_and(|record| record.outcome == RevisionOutcome::Rolling);
    let good = deployment
        .last_good
        .and_then(|good| Some((good, deployment.history.get(&good)?.clone())));
    let told = (Some(failed), Some(cause));
    let change = match good {
        Some(good) if rolling && !pause && deployment.phase == Phase::Deploying => {
            set_outcome(
                &mut deployment,
                RevisionOutcome::Reverted { cause: cause.clone() },
            );
            put_back(state, deployment, good, sink);
            let (service, cause) = told;
            DeploymentChange::Reverting {
                revision,
                service,
                cause,
            }
        }
        Some(_) | None => {
            if rolling {
                set_outcome(&mut deployment, RevisionOutcome::Failed { cause: cause.clone() });
            }
            deployment.phase = Phase::Failed;
            hold(state, &deployment, pause);
            state.deployments.insert(name.clone(), Arc::new(deployment));
            let (service, cause) = told;
            DeploymentChange::Failed {
                revision,
                service,
                cause,
            }
        }
    };
    sink.tell(state, Change::Deployment(name, change));
    Ok(Outcome::Done)
}

/// Makes a new revision of a good one.
fn put_back(
    state: &mut State,
    mut deployment: Deployment,
    (good, record): (DeploymentRevision, Arc<RevisionRecord>),
    sink: &mut dyn ChangeSink,
) {
    let kept = scaled::kept(state, &deployment, &record.spec);
    scaled::note(state, &mut deployment);
    supersede(&mut deployment);
    deployment.revision = deployment.next_revision();
    deployment.phase = Phase::Reverting;
    let now_unix_ms = state.clock_marks.wall_unix_ms(state.time);
    let back = RevisionRecord {
        asked: state.time,
        wall_unix_secs: now_unix_ms.map_or(record.wall_unix_secs, |ms| ms.div_euclid(1_000)),
        author: "revert".into(),
        outcome: RevisionOutcome::Rolling,
        brings_back: Some(good),
        spec: files::put_back(state, &scaled::as_written(&record.spec)),
    };
    deployment.history.insert(deployment.revision, Arc::new(back));
    trim_history(&mut deployment);
    forget_failures(state, &deployment);
    let name = deployment.name.clone();
    turn_services(state, deployment, &kept, sink);
    files::sweep(state, &name);
}

/// The version was at fault, so what failed with it speaks against no node.
fn forget_failures(state: &mut State, deployment: &Deployment) {
    for id in deployment.services.values() {
        if let Some(service) = replicas::service_mut(state, *id)
            && let Some(template) = service.target_info().map(|info| info.template)
        {
            service.failed_on.retain(|failed| failed.template != template);
        }
    }
}

fn hold(state: &mut State, deployment: &Deployment, pause: bool) {
    for id in deployment.services.values() {
        if let Some(service) = replicas::service_mut(state, *id) {
            service.held = pause;
        }
    }
}
