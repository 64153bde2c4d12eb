//! `dhow explain DEPLOYMENT/NAME`: why it is where it is, or why it is not running.

use dhow_wire::api::Explanation;

use super::target::{self, NamedTarget};
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// Say why a service or a replica is where it is, or why it is not running
#[derive(clap::Args)]
pub struct Args {
    /// A service or a replica; an exact service name wins
    #[arg(value_name = "DEPLOYMENT/NAME", value_parser = target::named_target)]
    target: NamedTarget,

    /// Print the API's JSON on stdout
    #[arg(long)]
    json: bool,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let path = ["deployments", args.target.deployment.as_str(), "explain"];
    let value = client
        .fetch(Request::get(&path).query("name", &args.target.name))
        .await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let explanation: Explanation = client.decode(value)?;
    let mut text = format!("{}\n", explanation.subject);
    for line in &explanation.lines {
        text += &format!("  {line}\n");
    }
    output::data(&text)?;
    Ok(Exit::Done)
}
