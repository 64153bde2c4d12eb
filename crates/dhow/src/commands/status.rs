//! `dhow status [DEPLOYMENT]`: services with running and desired, health, endpoints.

use dhow_core::ids::DeploymentName;
use dhow_wire::{DeploymentStatus, ServedEndpoint};

use super::endpoints::Viewpoint;
use super::target;
use super::wait::{print_endpoints, running, yes_no};
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, Table, word};

/// Show deployments: services with running and wanted replicas, health, endpoints
#[derive(clap::Args)]
pub struct Args {
    /// Only this one
    #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
    deployment: Option<DeploymentName>,

    /// Print the API's JSON on stdout
    #[arg(long)]
    json: bool,
}

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
    let mut heading = format!(
        "{}: {}, revision {}\n",
        status.deployment,
        word(&status.state),
        status.revision
    );
    if let Some(message) = &status.message {
        heading += &format!("  {}\n", output::one_line(message));
    }
    output::data(&heading)?;
    print_endpoints(client, &status.services, &status.served).await?;
    Ok(Exit::Done)
}

async fn all(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let value = client.fetch(Request::get(&["deployments"])).await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let list: Vec<DeploymentStatus> = client.decode(value)?;
    let mut table = Table::new(&[
        "DEPLOYMENT",
        "REVISION",
        "STATE",
        "SERVICE",
        "RUNNING",
        "HEALTHY",
        "ENDPOINTS",
    ]);
    let served: Vec<ServedEndpoint> = list.iter().flat_map(|status| status.served.clone()).collect();
    let viewpoint = Viewpoint::of(client, &served).await;
    for status in &list {
        for service in &status.services {
            table.row([
                status.deployment.clone(),
                status.revision.to_string(),
                word(&status.state),
                service.name.clone(),
                running(service),
                yes_no(service.healthy),
                viewpoint.addresses(service, &status.served),
            ]);
        }
        if status.services.is_empty() {
            let empty = String::new;
            let state = word(&status.state);
            table.row([
                status.deployment.clone(),
                status.revision.to_string(),
                state,
                empty(),
                empty(),
                empty(),
                empty(),
            ]);
        }
    }
    if table.is_empty() {
        output::note("nothing is deployed; `dhow deploy FILE` does it");
        return Ok(Exit::Done);
    }
    output::data(&table.render())?;
    Ok(Exit::Done)
}
