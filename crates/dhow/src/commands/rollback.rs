//! `dhow rollback DEPLOYMENT`: back to the last good revision, or to the one named.

use dhow_core::ids::DeploymentName;
use dhow_wire::api::{Deployed, RollbackRequest};

use super::target;
use super::wait::{WaitArgs, wait_until_stable};
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;
use crate::progress::Watch;

/// Bring an earlier revision of a deployment back, as a new one
///
/// Returns once it is durable.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
    deployment: DeploymentName,

    /// The revision to bring back; else the last good one before the current
    #[arg(long, value_name = "REVISION")]
    to: Option<u64>,

    #[command(flatten)]
    wait: WaitArgs,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let body = serde_json::to_value(RollbackRequest { to: args.to })?;
    let path = ["deployments", args.deployment.as_str(), "rollback"];
    let deployed: Deployed = client.fetch_as(Request::post(&path).json(body)).await?;
    let Deployed {
        deployment,
        revision,
        changed,
        ..
    } = &deployed;
    output::note(&match (args.to, *changed) {
        (_, false) => format!("{deployment} already runs that: it is revision {revision}"),
        (Some(to), true) => format!("{deployment} goes back to revision {to}, as revision {revision}"),
        (None, true) => format!("{deployment} goes back to its last good revision, as revision {revision}"),
    });
    if !args.wait.wait {
        return Ok(Exit::Done);
    }
    let what = Watch {
        deployment: args.deployment.clone(),
        revision: Some(*revision),
        timeout: args.wait.timeout(),
    };
    wait_until_stable(client, &what).await
}
