//! New replicas of the same version, where people ask for them.

use std::sync::Arc;

use super::deployment::{present, service_in};
use super::{completed, rollout, service, stopped};
use crate::change::{Change, ChangeSink, DeploymentChange};
use crate::command::{Outcome, Refused};
use crate::ids::{DeploymentName, ServiceId, ServiceName};
use crate::spec::RType;
use crate::state::State;

pub(super) fn restart(
    state: &mut State,
    name: &DeploymentName,
    only: Option<&ServiceName>,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let deployment = present(state, name)?.clone();
    let ids: Vec<ServiceId> = match only {
        Some(service) => vec![service_in(state, &deployment, service)?],
        None => {
            let all = deployment.services.values().copied();
            all.filter(|id| restarts_unnamed(state, *id)).collect()
        }
    };
    if ids.iter().any(|id| {
        state
            .service(*id)
            .is_some_and(|service| service.canary_base().is_some())
    }) {
        return Err(Refused::CanaryUnderWay(name.clone()));
    }
    if ids.is_empty() && state.feature_level >= JOBS_BY_NAME_SINCE {
        return Err(Refused::NothingToRestart(name.clone()));
    }
    for id in ids {
        stopped::forget(state, id);
        service::renew(state, id);
        forget_work(state, id);
    }
    rollout::begin_again(state, name);
    let change = DeploymentChange::RestartAsked { service: only };
    sink.tell(state, Change::Deployment(name, change));
    Ok(Outcome::Deployed {
        revision: deployment.revision,
        changed: true,
    })
}

/// From this level on.
const JOBS_BY_NAME_SINCE: u32 = 3;

/// Whether a restart of the whole deployment is meant for it. Work is done once: whoever wants a job or a schedule's run
/// again names it.
fn restarts_unnamed(state: &State, id: ServiceId) -> bool {
    let runs_on = state.service(id).is_none_or(|service| match service.rtype() {
        RType::Service | RType::System => true,
        RType::Job | RType::Cron => false,
    });
    runs_on || state.feature_level < JOBS_BY_NAME_SINCE
}

/// Forgets the finished work of a service that a user asked to run again.
fn forget_work(state: &mut State, id: ServiceId) {
    let Some(service) = state.service(id).cloned() else {
        return;
    };
    if let (Some(spec), Some(deployment)) =
        (service.spec(), state.deployments.get_mut(&service.key.deployment))
    {
        completed::forget(Arc::make_mut(deployment), &service.key.service, spec);
    }
}
