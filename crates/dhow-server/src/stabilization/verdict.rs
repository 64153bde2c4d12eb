//! What the state says of one revision of a deployment.

use dhow_core::ids::{DeploymentName, DeploymentRevision};
use dhow_core::state::{Deployment, Phase, RevisionOutcome, State};
use dhow_wire::stabilization::{Evaluation, evaluate};

use crate::services::ServiceSum;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    UnderWay,
    Ready,
    /// Given up, with the cause where the state keeps it.
    Failed {
        cause: Option<String>,
    },
    Reverted {
        cause: String,
    },
    Superseded {
        by: DeploymentRevision,
    },
    Removed,
}

pub(super) fn judge(state: &State, name: &DeploymentName, revision: DeploymentRevision) -> Verdict {
    let Some(deployment) = state.deployment(name) else {
        return Verdict::Removed;
    };
    if deployment.revision < revision {
        // It was removed and deployed anew, which counts from 1 again.
        return Verdict::Removed;
    }
    let record = deployment.history.get(&revision).map(|record| &record.outcome);
    if deployment.revision == revision {
        return of_current(state, deployment, record);
    }
    match record {
        Some(RevisionOutcome::Reverted { cause }) => Verdict::Reverted {
            cause: cause.to_string(),
        },
        Some(RevisionOutcome::Failed { cause }) => Verdict::Failed {
            cause: Some(cause.to_string()),
        },
        Some(
            RevisionOutcome::Rolling
            | RevisionOutcome::Good
            | RevisionOutcome::Superseded
            | RevisionOutcome::Conflicted,
        )
        | None => Verdict::Superseded {
            by: deployment.revision,
        },
    }
}

/// A scale or a restart begins a revision anew, so that the phase speaks and not what became of it before.
fn of_current(state: &State, deployment: &Deployment, record: Option<&RevisionOutcome>) -> Verdict {
    match deployment.phase {
        Phase::Deploying | Phase::Reverting | Phase::Removing => Verdict::UnderWay,
        Phase::Failed => Verdict::Failed {
            cause: match record {
                Some(RevisionOutcome::Failed { cause } | RevisionOutcome::Reverted { cause }) => {
                    Some(cause.to_string())
                }
                Some(
                    RevisionOutcome::Rolling
                    | RevisionOutcome::Good
                    | RevisionOutcome::Superseded
                    | RevisionOutcome::Conflicted,
                )
                | None => None,
            },
        },
        Phase::Stable | Phase::Reverted => match evaluation(state, deployment).is_ready() {
            true => Verdict::Ready,
            false => Verdict::UnderWay,
        },
    }
}

/// Every service of the deployment with the count that is wanted now.
pub(super) fn evaluation(state: &State, deployment: &Deployment) -> Evaluation {
    let services = deployment.services.values().filter_map(|id| state.service(*id));
    evaluate(services.map(|service| {
        let sum = ServiceSum::of(state, service);
        sum.observation(service, sum.desired)
    }))
}
