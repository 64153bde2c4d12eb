//! Revisions that were taken back because their version failed: the same again is refused, until it is asked for by force
//! or something in it changes.

use super::deployment::NewRevision;
use super::{scaled, stages};
use crate::command::Refused;
use crate::ids::DeploymentRevision;
use crate::spec::{ContentHash, DeploymentSpec};
use crate::state::{Deployment, Quarantined, RevisionOutcome, RevisionRecord, State};
use std::sync::Arc;

/// From this level on they are remembered beside the revisions that are kept.
const REMEMBERS_SINCE: u32 = 6;

/// Refuses what was taken back before, but for by force.
pub(super) fn check(state: &State, known: &Deployment, new: &NewRevision<'_>) -> Result<(), Refused> {
    if new.force || state.feature_level < stages::SINCE_LEVEL {
        return Ok(());
    }
    let mut history = known.history.iter().rev();
    let kept = history.find_map(|(revision, record)| held(*revision, record, new.spec));
    match kept.or_else(|| remembered(known, new.spec)) {
        Some((revision, cause)) => Err(Refused::Quarantined {
            deployment: known.name.clone(),
            revision,
            cause,
        }),
        None => Ok(()),
    }
}

/// The same where the revision may be kept no more.
fn remembered(known: &Deployment, spec: &DeploymentSpec) -> Option<(DeploymentRevision, Arc<str>)> {
    if known.quarantined.is_empty() {
        return None;
    }
    let found = known.quarantined.get(&fingerprint(spec)?)?;
    Some((found.revision, found.cause.clone()))
}

/// The same for two specs that ask for the same. None is never the case: every spec can be written.
fn fingerprint(spec: &DeploymentSpec) -> Option<ContentHash> {
    let bytes = serde_json::to_vec(spec).ok()?;
    Some(ContentHash::of(&bytes))
}

/// Remembers what the current revision asks for as what is refused from now on.
pub(super) fn remember(state: &State, deployment: &mut Deployment, cause: &Arc<str>) {
    if state.feature_level < REMEMBERS_SINCE {
        return;
    }
    let Some(record) = deployment.current() else {
        return;
    };
    let Some(hash) = fingerprint(&scaled::as_written(&record.spec)) else {
        return;
    };
    let revision = deployment.revision;
    let cause = cause.clone();
    deployment
        .quarantined
        .insert(hash, Quarantined { revision, cause });
    while deployment.quarantined.len() > Deployment::QUARANTINED_MAX {
        let oldest = deployment
            .quarantined
            .iter()
            .min_by_key(|(_, kept)| kept.revision);
        let Some(oldest) = oldest.map(|(hash, _)| *hash) else {
            return;
        };
        deployment.quarantined.remove(&oldest);
    }
}

fn held(
    revision: DeploymentRevision,
    record: &RevisionRecord,
    spec: &DeploymentSpec,
) -> Option<(DeploymentRevision, Arc<str>)> {
    match &record.outcome {
        RevisionOutcome::Reverted { cause, quarantined } => {
            let is_same = *quarantined && scaled::as_written(&record.spec).as_ref() == spec;
            is_same.then(|| (revision, cause.clone()))
        }
        RevisionOutcome::Rolling
        | RevisionOutcome::Good
        | RevisionOutcome::Superseded
        | RevisionOutcome::Failed { .. }
        | RevisionOutcome::Conflicted => None,
    }
}

/// Lets a spec be deployed again: it was asked for by force, or has proved to be good.
pub(super) fn lift(deployment: &mut Deployment, spec: &DeploymentSpec) {
    if !deployment.quarantined.is_empty()
        && let Some(hash) = fingerprint(spec)
    {
        deployment.quarantined.remove(&hash);
    }
    let same: Vec<DeploymentRevision> = deployment
        .history
        .iter()
        .filter_map(|(revision, record)| held(*revision, record, spec))
        .map(|(revision, _)| revision)
        .collect();
    for revision in same {
        if let Some(record) = deployment.history.get_mut(&revision)
            && let RevisionOutcome::Reverted { quarantined, .. } = &mut Arc::make_mut(record).outcome
        {
            *quarantined = false;
        }
    }
}

/// Whether a revision is to be held back after it has failed: never what the last good one is as well.
pub(super) fn applies(state: &State, deployment: &Deployment, of_version: bool) -> bool {
    let as_written = |revision| {
        let record: &Arc<RevisionRecord> = deployment.history.get(&revision)?;
        Some(scaled::as_written(&record.spec))
    };
    let good = deployment.last_good.and_then(as_written);
    of_version
        && state.feature_level >= stages::SINCE_LEVEL
        && good.is_none_or(|good| Some(good) != as_written(deployment.revision))
}
