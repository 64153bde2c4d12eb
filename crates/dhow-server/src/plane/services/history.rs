//! A deployment's revisions and what became of them.

use dhow_core::ids::DeploymentRevision;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::{Deployment, RevisionOutcome, RevisionRecord};
use dhow_wire::api::{HistoryEntry, RevisionState};

/// The newest first.
pub(super) fn history(deployment: &Deployment) -> Vec<HistoryEntry> {
    let entries = deployment.history.iter().rev();
    entries
        .map(|(revision, record)| entry(deployment, *revision, record))
        .collect()
}

fn entry(deployment: &Deployment, revision: DeploymentRevision, record: &RevisionRecord) -> HistoryEntry {
    let (state, cause) = RevisionState::of(&record.outcome);
    let cause = cause.or_else(|| match record.outcome {
        RevisionOutcome::Conflicted => Some(conflict(deployment, record)),
        RevisionOutcome::Rolling
        | RevisionOutcome::Good
        | RevisionOutcome::Superseded
        | RevisionOutcome::Reverted { .. }
        | RevisionOutcome::Failed { .. } => None,
    });
    HistoryEntry {
        revision: revision.0,
        state,
        author: record.author.to_string(),
        created_unix_secs: record.wall_unix_secs,
        cause,
        current: revision == deployment.revision,
        brings_back: record.brings_back.map(|back| back.0),
        quarantined: matches!(
            record.outcome,
            RevisionOutcome::Reverted {
                quarantined: true,
                ..
            }
        ),
        images: images(&record.spec),
    }
}

/// Whose it was, and the counts in which it differs: a scale has no other mark.
fn conflict(deployment: &Deployment, record: &RevisionRecord) -> String {
    let current = deployment.current().map(|current| &current.spec.services);
    let counts = record.spec.services.iter().filter_map(|(name, asked)| {
        let here = current?.get(name)?.desired_total_at_first();
        let asked = asked.desired_total_at_first();
        (asked != here).then(|| format!("{name}={asked}"))
    });
    let counts: Vec<String> = counts.collect();
    match counts.is_empty() {
        true => "of the half that lost".to_owned(),
        false => format!("of the half that lost, with {}", counts.join(" ")),
    }
}

fn images(spec: &DeploymentSpec) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for service in spec.services.values() {
        let groups = service
            .replica_groups
            .iter()
            .filter_map(|group| group.image.as_ref());
        for image in service.image.iter().chain(groups) {
            if !names.contains(&image.name) {
                names.push(image.name.clone());
            }
        }
    }
    names
}
