//! `dhow node …`: the nodes and what they run.

mod change;
mod drain;

pub use dhow_cli::node::Args;
use dhow_cli::node::{self, Command};
use dhow_wire::{NodeStatus, ReplicaStatus};

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Ls { json } => list(client, *json).await,
        Command::Show { node, json } => show(client, *node, *json).await,
        Command::Drain(args) => drain::drain(args, client).await,
        Command::Undrain(args) => change::undrain(args, client).await,
        Command::Label(args) => change::label(args, client).await,
        Command::Rm(args) => change::remove(args, client).await,
    }
}

async fn list(client: &Client, json: bool) -> anyhow::Result<Exit> {
    let value = client.fetch(Request::get(&["nodes"])).await?;
    if json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let nodes: Vec<NodeStatus> = client.decode(value)?;
    output::data(&node::list(&nodes))?;
    Ok(Exit::Done)
}

async fn show(client: &Client, id: u64, json: bool) -> anyhow::Result<Exit> {
    let number = id.to_string();
    let value = client.fetch(Request::get(&["nodes", &number])).await?;
    if json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let node: NodeStatus = client.decode(value)?;
    let replicas: Vec<ReplicaStatus> = client.fetch_as(Request::get(&["replicas"])).await?;
    output::data(&node::one(&node, &replicas, output::now_unix_secs()))?;
    Ok(Exit::Done)
}
