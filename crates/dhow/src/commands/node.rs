//! `dhow node …`: the nodes and what they run.

mod change;
mod drain;

use clap::Subcommand;
use dhow_wire::{NodeAmounts, NodeStatus, ReplicaStatus, ResourceAmount, WorkerLease};

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
        "NODE", "ROLE", "STATUS", "LEADER", "REPLICAS", "CPU", "MEMORY", "PLATFORM", "ADDRESS", "LABELS",
    ]);
    for node in &nodes {
        table.row([
            node.node_id.to_string(),
            word(&node.role),
            word(&node.status),
            yes_no(node.leader),
            node.replicas.to_string(),
            node.resources
                .map(|told| reserved_of(told, cpu))
                .unwrap_or_default(),
            node.resources
                .map(|told| reserved_of(told, memory))
                .unwrap_or_default(),
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
    output::data(&facts(&node, output::now_unix_secs()))?;
    let mut replicas: Vec<ReplicaStatus> = client.fetch_as(Request::get(&["replicas"])).await?;
    replicas.retain(|replica| replica.node_id == Some(id));
    let columns = ps::Columns {
        usage: replicas.iter().any(|replica| replica.cpu_used_milli.is_some()),
        live: false,
    };
    if !replicas.is_empty() {
        output::data(&format!("\n{}", ps::table(&replicas, columns).render()))?;
    }
    Ok(Exit::Done)
}

/// What is known of a node, a line each.
fn facts(node: &NodeStatus, now_unix_secs: i64) -> String {
    let mut facts = vec![
        ("node", node.node_id.to_string()),
        ("role", word(&node.role)),
        ("status", word(&node.status)),
        ("leader", yes_no(node.leader)),
        ("platform", platform(node)),
        ("address", node.api_addr.clone().unwrap_or_default()),
        ("labels", labels(node)),
        ("replicas", node.replicas.to_string()),
    ];
    if let Some(resources) = node.resources {
        facts.push(("cpu", amounts(resources, cpu)));
        facts.push(("memory", amounts(resources, memory)));
    }
    if let Some(lease) = &node.lease {
        facts.push(("lease", told(lease, now_unix_secs)));
    }
    if let Some(failures) = &node.failures {
        let look = match failures.suspect {
            true => "; the node itself may be at fault",
            false => "",
        };
        let services = failures.services.join(", ");
        facts.push(("failing", format!("{services} kept failing here{look}")));
    }
    if let Some(secs) = node.drain.as_ref().and_then(|drain| drain.ends_in_secs) {
        facts.push(("drain", format!("what is left is ended in {secs} s")));
    }
    for wait in node.drain.iter().flat_map(|drain| &drain.waiting) {
        let cannot = if wait.cannot_move { " cannot move" } else { "" };
        facts.push(("drain", format!("{}{cannot}: {}", wait.replica, wait.why)));
    }
    let line = |(name, value): (&str, String)| {
        let value = if value.is_empty() { "-" } else { &value };
        format!("{:<10} {value}\n", format!("{name}:"))
    };
    facts.into_iter().map(line).collect()
}

fn cpu(amount: ResourceAmount) -> String {
    output::cores(amount.cpu_milli)
}

fn memory(amount: ResourceAmount) -> String {
    output::bytes(amount.memory_bytes)
}

/// What is reserved of what there is.
fn reserved_of(resources: NodeAmounts, shown: fn(ResourceAmount) -> String) -> String {
    format!("{}/{}", shown(resources.reserved), shown(resources.capacity))
}

fn amounts(resources: NodeAmounts, shown: fn(ResourceAmount) -> String) -> String {
    let used = resources.used.map(|used| format!(", {} used", shown(used)));
    format!(
        "{}, {} reserved{}",
        shown(resources.capacity),
        shown(resources.reserved),
        used.unwrap_or_default()
    )
}

fn told(lease: &WorkerLease, now_unix_secs: i64) -> String {
    let state = match lease.is_expired(now_unix_secs, lease.grace_secs) {
        true => "run out",
        false => "good",
    };
    format!(
        "{state}, renewed {} ago for {}s and {}s of grace, held for {}",
        output::age(lease.renewed_unix_secs, now_unix_secs),
        lease.ttl_secs,
        lease.grace_secs,
        output::age(lease.acquired_unix_secs, now_unix_secs)
    )
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
