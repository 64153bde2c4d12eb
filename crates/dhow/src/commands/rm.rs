//! `dhow rm DEPLOYMENT`: ends all of its replicas and forgets it.

use dhow_core::ids::DeploymentName;
use dhow_core::spec::TimeSpan;
use dhow_wire::api::{ProgressOutcome, WriteDone};

use super::target;
use super::wait::{conclude, until_stable};
use crate::client::{Client, ClientError, Request};
use crate::exit::Exit;
use crate::output;
use crate::progress::Watch;

/// Remove a deployment: its replicas end, its endpoints close
///
/// Returns once it is durable.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
    deployment: DeploymentName,

    /// Wait until its last replica has ended
    #[arg(long)]
    wait: bool,

    /// How long to wait at most
    #[arg(long, value_name = "DURATION", default_value = "120s", requires = "wait")]
    timeout: TimeSpan,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let name = args.deployment.as_str();
    remove(client, &args.deployment).await?;
    if !args.wait {
        output::note(&format!("{name} is being removed"));
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
