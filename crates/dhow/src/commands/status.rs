//! `dhow status [DEPLOYMENT]`: services with running and desired, health, endpoints.

use dhow_cli::status;
pub use dhow_cli::status::Args;
use dhow_core::ids::DeploymentName;
use dhow_wire::{DeploymentStatus, ServedEndpoint};

use super::wait::viewpoint;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.deployment {
        Some(name) => one(args, client, name).await,
        None => all(args, client).await,
    }
}

async fn one(args: &Args, client: &Client, name: &DeploymentName) -> anyhow::Result<Exit> {
    let value = client
        .fetch(Request::get(&["deployments", name.as_str()]))
        .await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let status: DeploymentStatus = client.decode(value)?;
    let viewpoint = viewpoint(client, &status.served).await;
    output::data(&status::one(&status, &viewpoint))?;
    Ok(Exit::Done)
}

async fn all(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let value = client.fetch(Request::get(&["deployments"])).await?;
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
