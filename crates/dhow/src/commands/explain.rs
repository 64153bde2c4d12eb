//! `dhow explain DEPLOYMENT/NAME`: why it is where it is, or why it is not running.

use dhow_cli::explain;
use dhow_wire::api::Explanation;

use super::at::{self, AtArg};
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// What is explained, and of when.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    shown: explain::Args,

    #[command(flatten)]
    at: AtArg,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let moment = at::announced(client, &args.at).await?;
    let args = &args.shown;
    let path = ["deployments", args.target.deployment.as_str(), "explain"];
    let request = Request::get(&path)
        .query("name", &args.target.name)
        .query_if("at", moment.map(|moment| moment.revision));
    let value = client.fetch(request).await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let explanation: Explanation = client.decode(value)?;
    output::data(&explain::text(&explanation))?;
    Ok(Exit::Done)
}
