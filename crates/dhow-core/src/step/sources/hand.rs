//! What people may do beside a source: it has the last word about what it has brought, but for as long as somebody has
//! suspended it there.

use std::sync::Arc;

use super::SINCE_LEVEL;
use crate::change::{Change, ChangeSink, DeploymentChange};
use crate::command::{DeploymentCommand, Outcome, Refused};
use crate::ids::{DeploymentName, ServiceId};
use crate::spec::ScaleSpec;
use crate::state::{Deployment, State, Suspension};

/// The deployment and the source whose word counts there at this moment.
fn ruled<'a>(state: &'a State, name: &DeploymentName) -> Option<(&'a Arc<Deployment>, &'a Arc<str>)> {
    let known = state.deployment(name)?;
    let owner = known.owner()?;
    let counts = state.feature_level >= SINCE_LEVEL && !known.is_suspended(state.time);
    counts.then_some((known, owner))
}

/// Refuses another version by hand.
pub(in crate::step) fn check_hand(state: &State, name: &DeploymentName) -> Result<(), Refused> {
    match ruled(state, name) {
        Some((_, owner)) => Err(Refused::SourceWins {
            deployment: name.clone(),
            source_name: owner.clone(),
        }),
        None => Ok(()),
    }
}

/// Refuses a removal by hand, also while the source is suspended: what is gone could not go back to what the source says.
pub(in crate::step) fn check_removal(state: &State, name: &DeploymentName) -> Result<(), Refused> {
    let owner = state.deployment(name).and_then(|known| known.owner());
    match owner.filter(|_| state.feature_level >= SINCE_LEVEL) {
        Some(owner) => Err(Refused::SourceKeeps {
            deployment: name.clone(),
            source_name: owner.clone(),
        }),
        None => Ok(()),
    }
}

/// Refuses another number of replicas where the source's files say how many there are.
pub(in crate::step) fn check_scale(
    state: &State,
    deployment: &Deployment,
    id: ServiceId,
) -> Result<(), Refused> {
    let spec = state.service(id).and_then(|service| service.spec());
    let is_fixed = spec.is_some_and(|spec| match spec.scale {
        ScaleSpec::Fixed { .. } => true,
        ScaleSpec::Adaptive { .. } | ScaleSpec::Manual {} => !spec.replica_groups.is_empty(),
    });
    match is_fixed {
        true => check_hand(state, &deployment.name),
        false => Ok(()),
    }
}

/// What may be done with a suspension, and to which deployment.
fn subject(command: &DeploymentCommand) -> Option<&DeploymentName> {
    match command {
        DeploymentCommand::Deploy { spec, .. } => Some(&spec.deployment),
        DeploymentCommand::Scale { deployment, .. } | DeploymentCommand::Rollback { deployment, .. } => {
            Some(deployment)
        }
        DeploymentCommand::Remove { .. }
        | DeploymentCommand::Restart { .. }
        | DeploymentCommand::ApplyManifests { .. }
        | DeploymentCommand::RecordConflicted { .. }
        | DeploymentCommand::StartRun { .. }
        | DeploymentCommand::Steer { .. }
        | DeploymentCommand::Stop { .. }
        | DeploymentCommand::Start { .. }
        | DeploymentCommand::BindVolume { .. }
        | DeploymentCommand::Rebalance { .. }
        | DeploymentCommand::Hold { .. }
        | DeploymentCommand::EndHold { .. }
        | DeploymentCommand::Suspending { .. } => None,
    }
}

/// Carries a person's command out and has that person's word count for a while: both or neither.
pub(in crate::step) fn suspend(
    state: &mut State,
    suspension: &Suspension,
    command: &DeploymentCommand,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    super::super::needs_level(state, SINCE_LEVEL)?;
    let name = subject(command).ok_or(Refused::NotNow(
        "a source is suspended by a deploy, a scale or a rollback",
    ))?;
    let known = super::super::deployment::present(state, name)?.clone();
    if known.owner().is_none() {
        return Err(Refused::NothingToSuspend(name.clone()));
    }
    let with = Deployment {
        suspended: Some(suspension.clone()),
        ..known.as_ref().clone()
    };
    state.deployments.insert(name.clone(), Arc::new(with));
    match super::super::deployment::apply(state, command, sink) {
        Ok(outcome) => {
            let change = DeploymentChange::Suspended { suspension };
            sink.tell(state, Change::Deployment(name, change));
            Ok(outcome)
        }
        Err(refused) => {
            state.deployments.insert(name.clone(), known);
            Err(refused)
        }
    }
}
