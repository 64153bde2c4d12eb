//! Applies one entry to the state: total and deterministic. The reducer applies the cluster's entries with it, after
//! recovery has replayed those before; dry runs and the simulator apply to states of their own. It never reads a clock,
//! never panics on input, and a refusal changes nothing but the revision and the time.

mod agent;
mod api_tokens;
mod callers;
mod cluster;
mod completed;
mod conflicted;
mod deployment;
mod epoch;
mod files;
mod jobs;
mod node;
mod notify;
mod places;
mod plan;
mod quarantine;
mod rebalance;
mod replicas;
mod restart;
mod rollout;
mod runs;
mod scaled;
mod scaling;
mod service;
mod settings;
mod sources;
mod stages;
mod stopped;
mod volumes;
mod worker_cas;

use std::sync::Arc;

use crate::change::{Change, ChangeSink};
use crate::command::{
    ClusterCommand, Command, DeploymentCommand, Entry, NodeCommand, Outcome, Refused, RequestId,
};
use crate::state::{RequestRecord, State};

pub use deployment::rollback_target;
pub(crate) use files::{SINCE_LEVEL as FILES_LEVEL, named_contents};
pub(crate) use jobs::SINCE_LEVEL as JOBS_LEVEL;
pub(crate) use places::SINCE_LEVEL as PLACES_LEVEL;
pub(crate) use sources::SINCE_LEVEL as SOURCES_LEVEL;
pub(crate) use stopped::SINCE_LEVEL as STOP_LEVEL;
pub(crate) use volumes::SINCE_LEVEL as VOLUMES_LEVEL;

/// Applies one entry, and tells the sink what that changes.
pub fn step(state: &mut State, entry: &Entry, sink: &mut dyn ChangeSink) -> Result<Outcome, Refused> {
    let result = take(state, entry, sink);
    if let Err(refused) = &result {
        sink.tell(state, Change::Refused(refused));
    }
    result
}

fn take(state: &mut State, entry: &Entry, sink: &mut dyn ChangeSink) -> Result<Outcome, Refused> {
    state.revision = state.revision.next();
    state.time = state.time.max(entry.time);
    if let Some(request) = &entry.request
        && let Some(record) = state.requests.get(&request.request)
    {
        if record.body_hash != request.body_hash {
            return Err(Refused::KeyReused);
        }
        return Ok(record.outcome.clone());
    }
    let outcome = apply(state, entry, sink)?;
    if is_edit(&entry.command) {
        state.branch.edits = state.branch.edits.saturating_add(1);
    }
    if let Some(request) = &entry.request {
        remember(state, request, outcome.clone());
    }
    Ok(outcome)
}

fn apply(state: &mut State, entry: &Entry, sink: &mut dyn ChangeSink) -> Result<Outcome, Refused> {
    match &entry.command {
        Command::Cluster(command) => cluster::apply(state, entry.term, command, sink),
        Command::Node(command) => node::apply(state, command, sink),
        Command::Deployment(command) => deployment::apply(state, command, sink),
        Command::Plan(command) => {
            if entry.term != state.term {
                return Err(Refused::OldTerm {
                    proposed: entry.term,
                    current: state.term,
                });
            }
            plan::apply(state, command, sink)
        }
        Command::Agent(command) => agent::apply(state, command, sink),
    }
}

/// Commands about ids of nodes are refused by every server alike until the cluster has that level.
fn needs_node_ids(state: &State) -> Result<(), Refused> {
    needs_level(state, State::KEEPS_NODE_IDS)
}

/// Refuses what servers of an older version in the same cluster do not know.
fn needs_level(state: &State, needed: u32) -> Result<(), Refused> {
    match state.feature_level {
        has if has < needed => Err(Refused::FeatureLevel { needed, has }),
        _ => Ok(()),
    }
}

/// Whether a person or a program asked for the command, rather than the cluster itself.
fn is_edit(command: &Command) -> bool {
    match command {
        Command::Cluster(command) => match command {
            ClusterCommand::Bootstrap { .. }
            | ClusterCommand::TermBegan { .. }
            | ClusterCommand::EpochBegan { .. }
            | ClusterCommand::RaiseFeatureLevel { .. }
            | ClusterCommand::KeepServerIds { .. }
            | ClusterCommand::NotifyTold { .. }
            | ClusterCommand::UseToken { .. } => false,
            ClusterCommand::IssueToken { .. }
            | ClusterCommand::RevokeToken { .. }
            | ClusterCommand::SetSecret { .. }
            | ClusterCommand::RemoveSecret { .. }
            | ClusterCommand::IssueApiToken { .. }
            | ClusterCommand::RevokeApiToken { .. }
            | ClusterCommand::RotateWorkerCa { .. }
            | ClusterCommand::SetSource { .. }
            | ClusterCommand::RemoveSource { .. }
            | ClusterCommand::SetNotify { .. }
            | ClusterCommand::RemoveNotify { .. } => true,
        },
        Command::Node(command) => match command {
            NodeCommand::Register { .. }
            | NodeCommand::Lost { .. }
            | NodeCommand::Back { .. }
            | NodeCommand::TellsGenerations { .. }
            | NodeCommand::InternalTokenShown { .. } => false,
            NodeCommand::SetDrain { .. }
            | NodeCommand::Drain { .. }
            | NodeCommand::Label { .. }
            | NodeCommand::Remove { .. } => true,
        },
        Command::Deployment(command) => match command {
            DeploymentCommand::Deploy { .. }
            | DeploymentCommand::Remove { .. }
            | DeploymentCommand::Scale { .. }
            | DeploymentCommand::Restart { .. }
            | DeploymentCommand::Rollback { .. }
            | DeploymentCommand::StartRun { .. }
            | DeploymentCommand::BindVolume { .. }
            | DeploymentCommand::Steer { .. }
            | DeploymentCommand::Suspending { .. }
            | DeploymentCommand::Stop { .. }
            | DeploymentCommand::Start { .. }
            | DeploymentCommand::Rebalance { .. }
            | DeploymentCommand::Hold { .. }
            | DeploymentCommand::EndHold { .. }
            | DeploymentCommand::ApplyManifests { .. } => true,
            DeploymentCommand::RecordConflicted { .. } => false,
        },
        Command::Plan(_) | Command::Agent(_) => false,
    }
}

/// Keeps the answer for a retry, and forgets the oldest beyond the limit.
fn remember(state: &mut State, request: &RequestId, outcome: Outcome) {
    let record = RequestRecord {
        body_hash: request.body_hash,
        outcome,
    };
    state.requests.insert(request.request.clone(), Arc::new(record));
    state
        .request_order
        .insert(state.revision, request.request.clone());
    while state.requests.len() > State::REQUESTS_MAX {
        let Some((oldest, _)) = state.request_order.get_min().cloned() else {
            break;
        };
        if let Some(request) = state.request_order.remove(&oldest) {
            state.requests.remove(&request);
        }
    }
}

#[cfg(test)]
mod tests;
