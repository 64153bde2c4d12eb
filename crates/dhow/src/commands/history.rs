//! `dhow history DEPLOYMENT`: its revisions and what became of them.

use dhow_cli::history;
pub use dhow_cli::history::Args;
use dhow_wire::api::HistoryEntry;

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let path = ["deployments", args.deployment.as_str(), "history"];
    let value = client.fetch(Request::get(&path)).await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let entries: Vec<HistoryEntry> = client.decode(value)?;
    output::data(&history::text(&entries, output::now_unix_secs()))?;
    Ok(Exit::Done)
}
