//! `dhow rollout`: what is being rolled out, and what people do about it.

use dhow_cli::rollout;
pub use dhow_cli::rollout::{Args, Command};
use dhow_wire::api::{Deployed, RolloutRequest, RolloutStatus};

use super::wait::wait_until_stable;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;
use crate::progress::Watch;

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
    let Some(wait) = args.command.wait().filter(|wait| wait.wait) else {
        return Ok(Exit::Done);
    };
    let what = Watch {
        deployment: target.deployment,
        revision: None,
        timeout: wait.timeout(),
    };
    wait_until_stable(client, &what).await
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
