//! `dhow history DEPLOYMENT`: its revisions and what became of them.

use dhow_core::ids::DeploymentName;
use dhow_wire::api::HistoryEntry;

use crate::human::age;
use crate::table::Table;
use crate::target;

/// Show the revisions of a deployment and what became of them
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
    pub deployment: DeploymentName,

    /// Print the API's JSON on stdout
    #[arg(long)]
    pub json: bool,
}

pub fn text(entries: &[HistoryEntry], now_unix_secs: i64) -> String {
    let mut table = Table::new(&["REVISION", "STATE", "AGE", "AUTHOR", "IMAGES", "NOTE"]);
    for entry in entries {
        let mut notes = Vec::new();
        if entry.current {
            notes.push("current".to_owned());
        }
        if let Some(revision) = entry.brings_back {
            notes.push(format!("brings back {revision}"));
        }
        if entry.quarantined {
            notes.push("quarantined".to_owned());
        }
        notes.extend(entry.cause.clone());
        table.row([
            entry.revision.to_string(),
            entry.state.as_str().to_owned(),
            age(entry.created_unix_secs, now_unix_secs),
            entry.author.clone(),
            entry.images.join(" "),
            notes.join("; "),
        ]);
    }
    table.render()
}
