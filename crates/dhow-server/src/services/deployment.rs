//! How a deployment is doing.

use dhow_core::ids::ServiceName;
use dhow_core::state::{Deployment, Phase, RevisionOutcome, Service, State};
use dhow_wire::{DeploymentState, DeploymentStatus};

use super::sum::ServiceSum;

pub(super) fn services<'a>(
    state: &'a State,
    deployment: &'a Deployment,
) -> impl Iterator<Item = (&'a ServiceName, &'a Service)> {
    let all = deployment.services.iter();
    all.filter_map(|(name, id)| Some((name, state.service(*id)?.as_ref())))
}

pub(super) fn status(state: &State, deployment: &Deployment) -> DeploymentStatus {
    let sums: Vec<(&Service, ServiceSum)> = services(state, deployment)
        .map(|(_, service)| (service, ServiceSum::of(state, service)))
        .collect();
    let whole = sums.iter().all(|(_, sum)| sum.is_whole());
    DeploymentStatus {
        deployment: deployment.name.to_string(),
        revision: deployment.revision.0,
        state: state_of(deployment, whole),
        services: sums.iter().map(|(service, sum)| sum.summary(service)).collect(),
        message: message(deployment),
    }
}

/// The phase, or that a deployment which had come to rest is not whole at the moment.
pub(super) fn state_of(deployment: &Deployment, whole: bool) -> DeploymentState {
    match deployment.phase {
        Phase::Stable | Phase::Reverted if !whole => DeploymentState::Degraded,
        phase => phase.into(),
    }
}

/// Why it is in its state: the current revision's own failure, or that of the one it was reverted from.
fn message(deployment: &Deployment) -> Option<String> {
    let failed = deployment
        .history
        .iter()
        .rev()
        .find_map(|(revision, record)| match &record.outcome {
            RevisionOutcome::Failed { cause } | RevisionOutcome::Reverted { cause } => {
                Some(format!("revision {revision} failed: {cause}"))
            }
            RevisionOutcome::Rolling
            | RevisionOutcome::Good
            | RevisionOutcome::Superseded
            | RevisionOutcome::Conflicted => None,
        });
    match deployment.phase {
        Phase::Failed | Phase::Reverting | Phase::Reverted => failed,
        Phase::Deploying | Phase::Stable | Phase::Removing => None,
    }
}
