//! `dhow restart DEPLOYMENT[/SERVICE]`: new replicas of the same version, by the rules of a rollout.

use dhow_wire::api::{RestartRequest, WriteDone};

use super::target::{self, Target};
use super::wait::{WaitArgs, wait_until_stable};
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;
use crate::progress::Watch;

/// Restart a deployment or one service, replica by replica as a rollout does
///
/// Returns once it is durable.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "DEPLOYMENT[/SERVICE]", value_parser = target::target)]
    target: Target,

    #[command(flatten)]
    wait: WaitArgs,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let Target { deployment, name } = &args.target;
    let body = serde_json::to_value(RestartRequest {
        service: name.clone(),
    })?;
    let path = ["deployments", deployment.as_str(), "restart"];
    let _: WriteDone = client.fetch_as(Request::post(&path).json(body)).await?;
    match name {
        Some(service) => output::note(&format!("{deployment}/{service} restarts")),
        None => output::note(&format!("{deployment} restarts")),
    }
    if !args.wait.wait {
        return Ok(Exit::Done);
    }
    let what = Watch {
        deployment: deployment.clone(),
        revision: None,
        timeout: args.wait.timeout(),
    };
    wait_until_stable(client, &what).await
}
