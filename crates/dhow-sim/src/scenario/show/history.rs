//! `history`: a deployment's revisions and what became of them.

use dhow_core::ids::DeploymentName;
use dhow_core::state::{RevisionOutcome, RevisionRecord, State};

use crate::scenario::table::table;

pub(in crate::scenario) fn history(state: &State, name: &DeploymentName) -> Vec<String> {
    let Some(deployment) = state.deployment(name) else {
        return vec![format!("there is no deployment `{name}`")];
    };
    let rows: Vec<[String; 3]> = deployment
        .history
        .iter()
        .map(|(revision, record)| [revision.to_string(), record.author.to_string(), words(record)])
        .collect();
    table(["REVISION", "BY", "OUTCOME"], &rows)
}

fn words(record: &RevisionRecord) -> String {
    let outcome = match &record.outcome {
        RevisionOutcome::Rolling => "rolling".into(),
        RevisionOutcome::Good => "good".into(),
        RevisionOutcome::Superseded => "superseded".into(),
        RevisionOutcome::Reverted { cause } => format!("reverted: {cause}"),
        RevisionOutcome::Failed { cause } => format!("failed: {cause}"),
        RevisionOutcome::Conflicted => "conflicted".into(),
    };
    match record.brings_back {
        Some(back) => format!("{outcome} (brings back {back})"),
        None => outcome,
    }
}
