//! How a deployment's revision ends: good, reverted, failed.

use std::sync::Arc;

use super::deployment::{supersede, trim_history, turn_services};
use super::{files, quarantine, replicas, scaled, service, stages};
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

pub(super) fn set_outcome(deployment: &mut Deployment, outcome: RevisionOutcome) {
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
        Phase::Reverting | Phase::RevertFailed => Phase::Reverted,
        Phase::Deploying | Phase::Failed | Phase::Stable | Phase::Reverted | Phase::Removing => Phase::Stable,
    };
    set_outcome(&mut deployment, RevisionOutcome::Good);
    deployment.last_good = Some(revision);
    if let Some(spec) = deployment
        .current()
        .map(|record| scaled::as_written(&record.spec))
    {
        quarantine::lift(&mut deployment, &spec);
    }
    let services: Vec<ServiceId> = deployment.services.values().copied().collect();
    state.deployments.insert(name.clone(), Arc::new(deployment));
    for id in services {
        if let Some(service) = replicas::service_mut(state, id)
            && (service.rolling || service.rollout.is_some())
        {
            service.rolling = false;
            service.rollout = None;
        }
        service::prune(state, id);
    }
    files::sweep(state, name);
    files::forget_unused(state);
    sink.tell(
        state,
        Change::Deployment(name, DeploymentChange::Stable { revision }),
    );
    Ok(Outcome::Done)
}

/// Why a revision is given up.
pub(super) struct Failure<'a> {
    pub service: Option<ServiceId>,
    pub cause: &'a Arc<str>,
    /// The version is to blame, and no node.
    pub of_version: bool,
}

impl<'a> Failure<'a> {
    pub fn of(service: ServiceId, cause: &'a Arc<str>, of_version: bool) -> Self {
        Self {
            service: Some(service),
            cause,
            of_version,
        }
    }
}

/// Puts the last good revision back, or says that there is none.
pub(super) fn fail(
    state: &mut State,
    name: &DeploymentName,
    revision: DeploymentRevision,
    failure: &Failure<'_>,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let mut deployment = planned(state, name, revision)?;
    if matches!(deployment.phase, Phase::Failed | Phase::RevertFailed) {
        return Err(Stale::Generation.into());
    }
    let failed = failure.service.and_then(|failed| state.service(failed));
    let pause = failed
        .and_then(|service| service.spec())
        .is_some_and(|spec| spec.rollout.on_failure == OnFailure::Pause);
    // Only a revision that was never good is taken back: a scale or a restart has nothing to go back to.
    let rolling = deployment
        .current()
        .is_some_and(|record| record.outcome == RevisionOutcome::Rolling);
    if rolling
        && !pause
        && deployment.phase == Phase::Deploying
        && revert(state, &deployment, failure, sink).is_some()
    {
        return Ok(Outcome::Done);
    }
    let (service, cause) = (failure.service, Some(failure.cause));
    if rolling {
        let cause = failure.cause.clone();
        set_outcome(&mut deployment, RevisionOutcome::Failed { cause });
    }
    let is_revert = deployment.phase == Phase::Reverting && state.feature_level >= stages::SINCE_LEVEL;
    deployment.phase = match is_revert {
        true => Phase::RevertFailed,
        false => Phase::Failed,
    };
    hold(state, &deployment, pause && !is_revert);
    state.deployments.insert(name.clone(), Arc::new(deployment));
    let change = match is_revert {
        true => DeploymentChange::RevertFailed {
            revision,
            service,
            cause,
        },
        false => DeploymentChange::Failed {
            revision,
            service,
            cause,
        },
    };
    sink.tell(state, Change::Deployment(name, change));
    Ok(Outcome::Done)
}

/// Puts the last good revision back as a new one, where there is one.
pub(super) fn revert(
    state: &mut State,
    deployment: &Deployment,
    failure: &Failure<'_>,
    sink: &mut dyn ChangeSink,
) -> Option<()> {
    let good = deployment.last_good.filter(|good| *good != deployment.revision)?;
    let good = (good, deployment.history.get(&good)?.clone());
    let (mut deployment, revision) = (deployment.clone(), deployment.revision);
    let name = deployment.name.clone();
    let quarantined = quarantine::applies(state, &deployment, failure.of_version);
    if quarantined {
        quarantine::remember(state, &mut deployment, failure.cause);
    }
    let reverted = RevisionOutcome::Reverted {
        cause: failure.cause.clone(),
        quarantined,
    };
    set_outcome(&mut deployment, reverted);
    put_back(state, deployment, good, sink);
    let change = DeploymentChange::Reverting {
        revision,
        service: failure.service,
        cause: Some(failure.cause),
    };
    sink.tell(state, Change::Deployment(&name, change));
    Some(())
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
