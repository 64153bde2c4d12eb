//! `dhow rm DEPLOYMENT`: ends all of its replicas and forgets it.

use dhow_cli::rm;
pub use dhow_cli::rm::Args;
use dhow_core::ids::DeploymentName;
use dhow_wire::api::{ProgressOutcome, WriteDone};

use super::wait::{conclude, until_stable};
use crate::client::{Client, ClientError, Request};
use crate::exit::Exit;
use crate::output;
use crate::progress::Watch;

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let name = args.deployment.as_str();
    remove(client, &args.deployment).await?;
    if !args.wait {
        output::note(&rm::said(&args.deployment));
        return Ok(Exit::Done);
    }
    let what = Watch {
        deployment: args.deployment.clone(),
        revision: None,
        timeout: args.timeout.to_std(),
    };
    let watched = until_stable(client, &what).await?;
    let exit = conclude(&what, &watched, ProgressOutcome::Removed);
    if exit == Exit::Done {
        output::note(&format!("{name} is removed"));
    }
    Ok(exit)
}

/// Asks for the removal; it is durable when this returns.
pub async fn remove(client: &Client, deployment: &DeploymentName) -> Result<WriteDone, ClientError> {
    let path = ["deployments", deployment.as_str()];
    client.fetch_as(Request::delete(&path)).await
}
