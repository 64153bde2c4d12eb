//! `dhow explain DEPLOYMENT/NAME`: why it is where it is, or why it is not running.

use dhow_cli::explain;
use dhow_wire::api::Explanation;

use super::at::{self, At};
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// Say why a service or a replica is where it is, or why it is not running
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    shown: explain::Args,

    /// As it was then: at a revision of the state such as `1204`, at a time such as `2026-11-19T14:03` or `14:03`, or so
    /// long ago, such as `2h`
    #[arg(long, value_name = "REVISION|TIME", value_parser = at::at)]
    at: Option<At>,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let moment = at::announced(client, args.at).await?;
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
