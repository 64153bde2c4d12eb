//! `dhow node …`: the nodes and what they run.

mod change;
mod drain;

use clap::Subcommand;
use dhow_wire::{NodeStatus, ReplicaStatus};

use super::ps;
use super::wait::yes_no;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, Table, word};

/// The nodes of the cluster
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the nodes
    Ls {
        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Show one node and its replicas
    Show {
        #[arg(value_name = "NODE_ID")]
        node: u64,

        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    Drain(drain::DrainArgs),
    Undrain(change::UndrainArgs),
    Label(change::LabelArgs),
    Rm(change::RmArgs),
}

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
    let mut table = Table::new(&[
        "NODE", "ROLE", "STATUS", "LEADER", "REPLICAS", "PLATFORM", "ADDRESS", "LABELS",
    ]);
    for node in &nodes {
        table.row([
            node.node_id.to_string(),
            word(&node.role),
            word(&node.status),
            yes_no(node.leader),
            node.replicas.to_string(),
            platform(node),
            node.api_addr.clone().unwrap_or_default(),
            labels(node),
        ]);
    }
    output::data(&table.render())?;
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
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    output::data(&format!(
        "node:      {}\nrole:      {}\nstatus:    {}\nleader:    {}\nplatform:  {}\naddress:   {}\nlabels:    {}\nreplicas:  {}\n",
        node.node_id,
        word(&node.role),
        word(&node.status),
        yes_no(node.leader),
        or_none(platform(&node)),
        or_none(node.api_addr.clone().unwrap_or_default()),
        or_none(labels(&node)),
        node.replicas,
    ))?;
    for wait in node.drain.iter().flat_map(|drain| &drain.waiting) {
        let cannot = if wait.cannot_move { " cannot move" } else { "" };
        output::data(&format!("drain:     {}{cannot}: {}\n", wait.replica, wait.why))?;
    }
    let mut replicas: Vec<ReplicaStatus> = client.fetch_as(Request::get(&["replicas"])).await?;
    replicas.retain(|replica| replica.node_id == Some(id));
    if !replicas.is_empty() {
        output::data(&format!("\n{}", ps::table(&replicas).render()))?;
    }
    Ok(Exit::Done)
}

fn platform(node: &NodeStatus) -> String {
    match (&node.os, &node.arch) {
        (Some(os), Some(arch)) => format!("{os}/{arch}"),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) => String::new(),
    }
}

fn labels(node: &NodeStatus) -> String {
    let labels: Vec<String> = node
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    labels.join(",")
}
