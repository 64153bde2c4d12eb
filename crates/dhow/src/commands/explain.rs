//! `dhow explain DEPLOYMENT/NAME`: why it is where it is, or why it is not running.

use dhow_cli::explain;
pub use dhow_cli::explain::Args;
use dhow_wire::api::Explanation;

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

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
    output::data(&explain::text(&explanation))?;
    Ok(Exit::Done)
}
