//! `dhow restart DEPLOYMENT[/SERVICE]`: new replicas of the same version, by the rules of a rollout.

use dhow_cli::restart;
pub use dhow_cli::restart::Args;
use dhow_cli::target::Target;
use dhow_wire::api::{RestartRequest, WriteDone};

use super::wait::wait_until_stable;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;
use crate::progress::Watch;

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let Target { deployment, name } = &args.target;
    let body = serde_json::to_value(RestartRequest {
        service: name.clone(),
    })?;
    let path = ["deployments", deployment.as_str(), "restart"];
    let _: WriteDone = client.fetch_as(Request::post(&path).json(body)).await?;
    output::note(&restart::said(&args.target));
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
