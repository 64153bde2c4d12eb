//! `dhow history DEPLOYMENT`: its revisions and what became of them.

use dhow_core::ids::DeploymentName;
use dhow_wire::api::HistoryEntry;

use super::target;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, Table};

/// Show the revisions of a deployment and what became of them
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
    deployment: DeploymentName,

    /// Print the API's JSON on stdout
    #[arg(long)]
    json: bool,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let path = ["deployments", args.deployment.as_str(), "history"];
    let value = client.fetch(Request::get(&path)).await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let entries: Vec<HistoryEntry> = client.decode(value)?;
    let now = output::now_unix_secs();
    let mut table = Table::new(&["REVISION", "STATE", "AGE", "AUTHOR", "IMAGES", "NOTE"]);
    for entry in &entries {
        let mut notes = Vec::new();
        if entry.current {
            notes.push("current".to_owned());
        }
        if let Some(revision) = entry.brings_back {
            notes.push(format!("brings back {revision}"));
        }
        notes.extend(entry.cause.clone());
        table.row([
            entry.revision.to_string(),
            entry.state.as_str().to_owned(),
            output::age(entry.created_unix_secs, now),
            entry.author.clone(),
            entry.images.join(" "),
            notes.join("; "),
        ]);
    }
    output::data(&table.render())?;
    Ok(Exit::Done)
}
