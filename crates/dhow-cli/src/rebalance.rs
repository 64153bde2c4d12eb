//! `dhow rebalance` and `dhow plan rebalance`: which replicas would be moved, and that they are.

use dhow_core::ids::DeploymentName;
use dhow_core::spec::Cpu;
use dhow_wire::api::{NodeFigures, RebalancePlan};

use crate::human::bytes;
use crate::table::Table;
use crate::target;
use crate::wait::WaitArgs;

/// Move replicas so that services are spread as if they were placed now
///
/// Within what each service promises of a rollout: the new replica first, where it may be doubled. What is bound to its
/// node is never moved: volumes, pinned and packed services, jobs, what runs on every node. `dhow plan rebalance` shows
/// the moves and changes nothing.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub which: Which,

    #[command(flatten)]
    pub wait: WaitArgs,

    /// What has not gone yet stays where it is
    #[arg(long, conflicts_with_all = ["deployment", "max"])]
    pub stop: bool,
}

/// Which replicas are looked at.
#[derive(clap::Args)]
pub struct Which {
    /// Of this deployment alone
    #[arg(long, value_name = "NAME", value_parser = target::deployment)]
    pub deployment: Option<DeploymentName>,

    /// Move so many replicas at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub max: Option<u32>,
}

/// Show which replicas `dhow rebalance` would move, and what each node has before and after
#[derive(clap::Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub which: Which,

    /// Print the API's JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// The moves, and what nodes have before and after.
pub fn text(plan: &RebalancePlan) -> String {
    let mut text = String::new();
    if plan.under_way > 0 {
        text += &format!(
            "{} are on their way by a rebalance that was begun\n",
            replicas(plan.under_way)
        );
    }
    if plan.moves.is_empty() {
        return text + "nothing to move: no replica would lie better on another node\n";
    }
    let mut moves = Table::new(&["REPLICA", "FROM", "TO"]);
    for one in &plan.moves {
        let replica = format!("{}/{}", one.deployment, one.replica);
        moves.row([replica, format!("node {}", one.from), format!("node {}", one.to)]);
    }
    text += &moves.render();
    if plan.more {
        text += "there is more to move than that\n";
    }
    let mut nodes = Table::new(&["NODE", "REPLICAS", "AFTER", "CPU", "AFTER", "MEMORY", "AFTER"]);
    for node in &plan.nodes {
        nodes.row(figures(node));
    }
    text + "\n" + &nodes.render()
}

fn figures(node: &NodeFigures) -> [String; 7] {
    let cpu = |milli: u64| format!("{}/{}", Cpu(milli), Cpu(node.cpu_milli_total));
    let memory = |used: u64| format!("{}/{}", bytes(used), bytes(node.memory_bytes_total));
    [
        node.node_id.to_string(),
        node.replicas.to_string(),
        node.replicas_after.to_string(),
        cpu(node.cpu_milli),
        cpu(node.cpu_milli_after),
        memory(node.memory_bytes),
        memory(node.memory_bytes_after),
    ]
}

fn replicas(count: u32) -> String {
    match count {
        1 => "1 replica".into(),
        more => format!("{more} replicas"),
    }
}

/// What was begun.
pub fn said(plan: &RebalancePlan) -> String {
    match plan.moves.len() {
        0 => "nothing to move: no replica would lie better on another node".into(),
        count => {
            let count = replicas(u32::try_from(count).unwrap_or(u32::MAX));
            format!("moving {count}; `dhow rebalance --stop` keeps the rest where it is")
        }
    }
}

/// What a stop did.
pub const STOPPED: &str = "what has not gone yet stays where it is";
