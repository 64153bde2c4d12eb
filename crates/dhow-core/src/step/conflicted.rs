//! Revisions that the losing half of a divided static cluster wrote: kept for people to look at.

use std::sync::Arc;

use super::deployment::{check_asked, fresh, trim_history};
use super::files;
use crate::change::{Change, ChangeSink, DeploymentChange};
use crate::command::{Outcome, Refused};
use crate::spec::DeploymentSpec;
use crate::state::{Phase, RevisionOutcome, RevisionRecord, State};

/// Keeps what the losing half of a divided cluster wrote. It changes nothing that runs; where nobody else knows the
/// deployment, it is there with that revision alone, to be rolled back to or removed.
pub(super) fn record(
    state: &mut State,
    spec: &Arc<DeploymentSpec>,
    author: &Arc<str>,
    wall_unix_secs: i64,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    check_asked(state, spec)?;
    let name = &spec.deployment;
    let known = state.deployment(name).cloned();
    let files::Resolved { spec, contents } = files::resolve(state, known.as_deref(), spec)?;
    let spec = &spec;
    let is_new = known.is_none();
    let mut deployment = known.map_or_else(|| fresh(name), |known| known.as_ref().clone());
    let kept = deployment.history.iter().find(|(_, record)| {
        record.outcome == RevisionOutcome::Conflicted
            && record.spec == *spec
            && record.author == *author
            && record.wall_unix_secs == wall_unix_secs
    });
    if let Some((revision, _)) = kept {
        // A peer sends a conflict again where it does not know whether the leader took it.
        return Ok(Outcome::Deployed {
            revision: *revision,
            changed: false,
        });
    }
    let revision = deployment.next_revision();
    let record = RevisionRecord {
        spec: spec.clone(),
        asked: state.time,
        wall_unix_secs,
        author: author.clone(),
        outcome: RevisionOutcome::Conflicted,
        brings_back: None,
    };
    deployment.history.insert(revision, Arc::new(record));
    if is_new {
        deployment.revision = revision;
        deployment.phase = Phase::Reverted;
    }
    deployment.contents = contents.union(deployment.contents);
    trim_history(&mut deployment);
    state.deployments.insert(name.clone(), Arc::new(deployment));
    files::sweep(state, name);
    let change = DeploymentChange::Conflicted { revision, author };
    sink.tell(state, Change::Deployment(name, change));
    Ok(Outcome::Deployed {
        revision,
        changed: true,
    })
}
