//! `dhow node …`: the nodes and what they run.

mod change;
mod drain;

use clap::Subcommand;
use dhow_core::directory::REVERSE;
use dhow_wire::{NodeAmounts, NodeStatus, ReplicaStatus, ResourceAmount, WorkerLease};

pub use change::{LabelArgs, RmArgs, UndrainArgs};
pub use drain::{DrainArgs, DrainEnd, ShownDrain, timed_out};

use crate::human::{age, bytes, cores, one_line};
use crate::ps;
use crate::shown::{word, yes_no};
use crate::table::Table;

/// The nodes of the cluster
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
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
    Drain(DrainArgs),
    Undrain(UndrainArgs),
    Label(LabelArgs),
    Rm(RmArgs),
}

pub fn list(nodes: &[NodeStatus]) -> String {
    let mut table = Table::new(&[
        "NODE", "ROLE", "STATUS", "LEADER", "REPLICAS", "CPU", "MEMORY", "PLATFORM", "ADDRESS", "LABELS",
    ]);
    for node in nodes {
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
    table.render()
}

/// One node and, of all replicas, its own.
pub fn one(node: &NodeStatus, replicas: &[ReplicaStatus], now_unix_secs: i64) -> String {
    let here = replicas
        .iter()
        .filter(|replica| replica.node_id == Some(node.node_id));
    let here: Vec<ReplicaStatus> = here.cloned().collect();
    let columns = ps::Columns {
        usage: here.iter().any(|replica| replica.cpu_used_milli.is_some()),
        live: false,
        whole: false,
    };
    let mut text = facts(node, now_unix_secs);
    if !here.is_empty() {
        text += &format!("\n{}", ps::table(&here, columns, now_unix_secs).render());
    }
    text
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
        ("replicas", replicas(node)),
    ];
    if let Some(mesh_addr) = &node.mesh_addr {
        let reached = match mesh_addr.as_str() {
            REVERSE => "nobody can dial it: it is reached in reverse, through its servers".to_owned(),
            mesh_addr => format!("those of other nodes reach it at {mesh_addr}"),
        };
        facts.push(("proxy", reached));
    }
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
    if node.drain.as_ref().is_some_and(|drain| drain.drained) {
        let until = format!("`dhow node undrain {}`", node.node_id);
        facts.push((
            "drain",
            format!("it is drained: once it is back, it takes no replicas before {until}"),
        ));
    }
    for wait in node.drain.iter().flat_map(|drain| &drain.waiting) {
        let cannot = if wait.cannot_move { " cannot move" } else { "" };
        facts.push(("drain", format!("{}{cannot}: {}", wait.replica, wait.why)));
    }
    let line = |(name, value): (&str, String)| {
        // Labels are what people and workers have written.
        let value = match one_line(&value) {
            empty if empty.is_empty() => "-".to_owned(),
            value => value,
        };
        format!("{:<10} {value}\n", format!("{name}:"))
    };
    facts.into_iter().map(line).collect()
}

fn replicas(node: &NodeStatus) -> String {
    match node.runs_replicas {
        true => node.replicas.to_string(),
        false => format!("{}; it is a server that runs none", node.replicas),
    }
}

fn cpu(amount: ResourceAmount) -> String {
    cores(amount.cpu_milli)
}

fn memory(amount: ResourceAmount) -> String {
    bytes(amount.memory_bytes)
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
        age(lease.renewed_unix_secs, now_unix_secs),
        lease.ttl_secs,
        lease.grace_secs,
        age(lease.acquired_unix_secs, now_unix_secs)
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
