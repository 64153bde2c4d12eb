//! `dhow rollout`: what is being rolled out, and what people do about it.

use dhow_cli::rollout;
pub use dhow_cli::rollout::{Args, Command};
use dhow_wire::api::{Deployed, RolloutRequest, RolloutStatus};

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let Some((action, target)) = args.command.asked() else {
        return list(&args.command, client).await;
    };
    let body = serde_json::to_value(RolloutRequest {
        action,
        service: target.name.clone(),
    })?;
    let path = ["deployments", target.deployment.as_str(), "rollout"];
    let deployed: Deployed = client.fetch_as(Request::post(&path).json(body)).await?;
    output::note(&rollout::said(action, &target, &deployed));
    Ok(Exit::Done)
}

async fn list(command: &Command, client: &Client) -> anyhow::Result<Exit> {
    let found: Vec<RolloutStatus> = client.fetch_as(Request::get(&["rollouts"])).await?;
    if matches!(command, Command::Ls { json: true }) {
        output::json(&serde_json::to_value(&found)?)?;
        return Ok(Exit::Done);
    }
    output::show(&rollout::list(&found))?;
    Ok(Exit::Done)
}
