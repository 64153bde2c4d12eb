//! `dhow status [DEPLOYMENT]`: services with running and desired, health, endpoints.

use dhow_cli::status;
use dhow_core::ids::DeploymentName;
use dhow_wire::{DeploymentStatus, ServedEndpoint};

use super::at::{self, At};
use super::wait::viewpoint;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// Show deployments: services with running and wanted replicas, health, endpoints
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    shown: status::Args,

    /// As it was then: at a revision of the state such as `1204`, at a time such as `2026-11-19T14:03` or `14:03`, or so
    /// long ago, such as `2h`
    #[arg(long, value_name = "REVISION|TIME", value_parser = at::at)]
    at: Option<At>,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let moment = at::announced(client, args.at).await?;
    let revision = moment.map(|moment| moment.revision);
    match &args.shown.deployment {
        Some(name) => one(&args.shown, client, name, revision).await,
        None => all(&args.shown, client, revision).await,
    }
}

async fn one(
    args: &status::Args,
    client: &Client,
    name: &DeploymentName,
    at: Option<u64>,
) -> anyhow::Result<Exit> {
    let path = ["deployments", name.as_str()];
    let value = client.fetch(Request::get(&path).query_if("at", at)).await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let status: DeploymentStatus = client.decode(value)?;
    let viewpoint = viewpoint(client, &status.served).await;
    output::data(&status::one(&status, &viewpoint))?;
    Ok(Exit::Done)
}

async fn all(args: &status::Args, client: &Client, at: Option<u64>) -> anyhow::Result<Exit> {
    let request = Request::get(&["deployments"]).query_if("at", at);
    let value = client.fetch(request).await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let list: Vec<DeploymentStatus> = client.decode(value)?;
    let served: Vec<ServedEndpoint> = list.iter().flat_map(|status| status.served.clone()).collect();
    let viewpoint = viewpoint(client, &served).await;
    output::show(&status::all(&list, &viewpoint))?;
    Ok(Exit::Done)
}
