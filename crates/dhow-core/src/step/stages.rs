//! Rollouts that go in stages: what a canary was judged by, and what people do with a rollout that is under way.

use std::sync::Arc;

use super::{deployment, replicas, rollout, service};
use crate::change::{Change, ChangeSink, DeploymentChange, ServiceChange};
use crate::command::{Missing, Outcome, Refused, RolloutAction, Stale};
use crate::ids::{DeploymentName, Generation, ServiceId, ServiceName};
use crate::rollout::{Judgement, Verdict};
use crate::spec::{DeploymentSpec, Promote, RolloutSpec};
use crate::state::{Deployment, Phase, RevisionOutcome, Rollout, Service, Stage, State};

/// From this level on there are canaries, failure ratios, quarantine and what people say of a rollout.
pub(super) const SINCE_LEVEL: u32 = RolloutSpec::STAGES_SINCE;

/// From this level on a canary that was found worse and is resumed is another canary, of which nothing is counted yet.
const TRIED_ANEW_LEVEL: u32 = 6;

/// A spec with such rules is refused until all servers know them.
pub(super) fn check_level(state: &State, spec: &DeploymentSpec) -> Result<(), Refused> {
    match spec.needs_stages() {
        true => super::needs_level(state, SINCE_LEVEL),
        false => Ok(()),
    }
}

/// Takes note of what a canary was judged by. A worse one is given up; a good one is followed by the others, unless a
/// person has to say so.
pub(super) fn judged(
    state: &mut State,
    (id, generation): (ServiceId, Generation),
    judgement: &Judgement,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    super::needs_level(state, SINCE_LEVEL)?;
    let service = state.service(id).ok_or(Missing::ServiceId(id))?.clone();
    let deployment = state.deployment(&service.key.deployment).cloned();
    let is_open = deployment
        .as_ref()
        .is_some_and(|known| known.phase == Phase::Deploying);
    if service.target != generation || service.canary_base().is_none() || !is_open {
        return Err(Stale::Generation.into());
    }
    let is_followed = service
        .spec()
        .is_some_and(|spec| spec.rollout.promote == Promote::Auto);
    let is_worse = judgement.verdict == Verdict::Worse;
    let now = state.time;
    if let Some(service) = replicas::service_mut(state, id)
        && let Some(rollout) = &mut service.rollout
    {
        rollout.judgement = Some(*judgement);
        if is_followed && !is_worse {
            rollout.stage = Stage::Spread;
            service.progressed = now;
        }
    }
    sink.tell(
        state,
        Change::Service(id, ServiceChange::CanaryJudged(*judgement)),
    );
    if is_worse && let Some(deployment) = deployment {
        let cause: Arc<str> = format!("`{}`: {judgement}", service.key.service).into();
        let failure = rollout::Failure::of(id, &cause, true);
        return rollout::fail(state, &deployment.name, deployment.revision, &failure, sink);
    }
    Ok(Outcome::Done)
}

/// A person takes a hand in the rollout of a deployment, or of one of its services.
pub(super) fn steer(
    state: &mut State,
    deployment: &DeploymentName,
    name: Option<&ServiceName>,
    (action, author): (RolloutAction, &Arc<str>),
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    super::needs_level(state, SINCE_LEVEL)?;
    let deployment = &deployment::present(state, deployment)?.clone();
    let only = name.map(|name| deployment::service_in(state, deployment, name));
    let only = only.transpose()?;
    if action == RolloutAction::Abort {
        return abort(state, deployment, author, sink);
    }
    let is_held = deployment.phase == Phase::Failed && is_held(state, deployment);
    if deployment.phase != Phase::Deploying && !is_held {
        return Err(Refused::NoRollout(deployment.name.clone()));
    }
    let all = deployment.services.values().copied();
    let concerned: Vec<ServiceId> = all
        .filter(|id| only.is_none_or(|only| only == *id))
        .filter(|id| {
            state
                .service(*id)
                .is_some_and(|service| concerns(service, action))
        })
        .collect();
    if concerned.is_empty() {
        let name = deployment.name.clone();
        return Err(match action {
            RolloutAction::Promote => Refused::NoCanary(name),
            RolloutAction::Resume => Refused::NotPaused(name),
            RolloutAction::Pause | RolloutAction::Abort => Refused::NoRollout(name),
        });
    }
    let (now, level) = (state.time, state.feature_level);
    for id in concerned {
        if let Some(service) = replicas::service_mut(state, id) {
            let judgement = service.rollout.as_ref().and_then(|rollout| rollout.judgement);
            let is_worse = action == RolloutAction::Resume
                && judgement.is_some_and(|known| known.verdict == Verdict::Worse);
            turn(service, action, author);
            if level >= TRIED_ANEW_LEVEL && is_worse {
                service::try_canary_anew(service, now);
            }
            service.progressed = now;
        }
    }
    let change = DeploymentChange::Steered {
        action,
        service: name,
        author,
    };
    sink.tell(state, Change::Deployment(&deployment.name, change));
    if is_held && action != RolloutAction::Pause {
        go_on(state, &deployment.name, sink);
    }
    Ok(Outcome::Deployed {
        revision: deployment.revision,
        changed: true,
    })
}

fn is_held(state: &State, deployment: &Deployment) -> bool {
    let mut services = deployment.services.values();
    services.any(|id| state.service(*id).is_some_and(|service| service.held))
}

fn concerns(service: &Service, action: RolloutAction) -> bool {
    match action {
        RolloutAction::Promote => service.canary_base().is_some(),
        RolloutAction::Pause => service.rolling && !service.held && service.paused_by().is_none(),
        RolloutAction::Resume => service.held || service.paused_by().is_some(),
        RolloutAction::Abort => false,
    }
}

fn turn(service: &mut Service, action: RolloutAction, author: &Arc<str>) {
    let rollout = service.rollout.get_or_insert_with(Rollout::spread);
    match action {
        RolloutAction::Promote => {
            rollout.stage = Stage::Spread;
            rollout.paused_by = None;
        }
        RolloutAction::Pause => rollout.paused_by = Some(author.clone()),
        RolloutAction::Resume => {
            rollout.paused_by = None;
            // One that was found worse is judged again.
            rollout.judgement = rollout.judgement.filter(|known| known.verdict != Verdict::Worse);
        }
        RolloutAction::Abort => {}
    }
}

/// A revision that had failed and was told to pause is under way again, with a clean slate.
fn go_on(state: &mut State, name: &DeploymentName, sink: &mut dyn ChangeSink) {
    let Some(found) = state.deployments.get_mut(name) else {
        return;
    };
    let deployment = Arc::make_mut(found);
    deployment.phase = Phase::Deploying;
    let is_failed = deployment
        .current()
        .is_some_and(|record| matches!(record.outcome, RevisionOutcome::Failed { .. }));
    if is_failed {
        rollout::set_outcome(deployment, RevisionOutcome::Rolling);
    }
    let services: Vec<ServiceId> = deployment.services.values().copied().collect();
    let now = state.time;
    for id in services {
        if let Some(service) = replicas::service_mut(state, id) {
            service.held = false;
            service.progressed = now;
        }
    }
    deployment::begin_failed_anew(state, name, sink);
}

/// Back to the last good revision, because a person says so. The version is not to blame: it may be deployed again.
fn abort(
    state: &mut State,
    deployment: &Deployment,
    author: &Arc<str>,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let name = &deployment.name;
    let is_open = matches!(deployment.phase, Phase::Deploying | Phase::Failed);
    let is_bad = deployment.current().is_some_and(|record| match record.outcome {
        RevisionOutcome::Rolling | RevisionOutcome::Failed { .. } => true,
        RevisionOutcome::Good
        | RevisionOutcome::Superseded
        | RevisionOutcome::Reverted { .. }
        | RevisionOutcome::Conflicted => false,
    });
    if !is_open || !is_bad {
        return Err(Refused::NoRollout(name.clone()));
    }
    let cause: Arc<str> = format!("{author} aborted it").into();
    let failure = rollout::Failure {
        service: None,
        cause: &cause,
        of_version: false,
    };
    rollout::revert(state, deployment, &failure, sink)
        .ok_or_else(|| Refused::NothingToRollBackTo(name.clone()))?;
    let revision = state
        .deployment(name)
        .map_or(deployment.revision, |known| known.revision);
    Ok(Outcome::Deployed {
        revision,
        changed: true,
    })
}
