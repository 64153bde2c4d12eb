//! What the state says of one revision of a deployment.

use dhow_core::ids::{DeploymentName, DeploymentRevision};
use dhow_core::state::{Deployment, Phase, RevisionOutcome, State};

/// Whether a revision is decided, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    UnderWay,
    /// The planner has nothing more to do: whether everything runs is another question.
    Settled,
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
        return of_current(deployment, record);
    }
    match record {
        Some(RevisionOutcome::Reverted { cause, .. }) => Verdict::Reverted {
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
fn of_current(deployment: &Deployment, record: Option<&RevisionOutcome>) -> Verdict {
    match deployment.phase {
        Phase::Deploying | Phase::Reverting | Phase::Removing => Verdict::UnderWay,
        Phase::Failed | Phase::RevertFailed => Verdict::Failed {
            cause: match record {
                Some(RevisionOutcome::Failed { cause } | RevisionOutcome::Reverted { cause, .. }) => {
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
        Phase::Stable | Phase::Reverted => Verdict::Settled,
    }
}
