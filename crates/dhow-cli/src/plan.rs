//! `dhow plan FILE`: what a deployment would change and where its replicas would go. Changes nothing.

use std::collections::BTreeMap;

use dhow_core::spec::{DeploymentSpec, RType};
use dhow_wire::api::{DeploymentPlan, PlanChange, PlannedService};

use crate::rebalance;
use crate::source_files::FileArgs;

/// Show what a deployment would change and where its replicas would go
///
/// Nothing is changed. Where no daemon answers and none was named, the plan is made for this machine alone.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    pub what: Option<What>,

    #[command(flatten)]
    pub from: FileArgs,

    /// Print the plan as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// What else than a file can be planned.
#[derive(clap::Subcommand)]
pub enum What {
    Rebalance(rebalance::PlanArgs),
}

fn word(change: &PlannedService) -> String {
    match change.change {
        PlanChange::New => format!("new, {}", replicas(change.to)),
        PlanChange::Rolls => format!(
            "replaces its replicas, {} to {}",
            change.from,
            replicas(change.to)
        ),
        PlanChange::Scales => format!("scales from {} to {}", change.from, change.to),
        PlanChange::InPlace => "changes without a restart".into(),
        PlanChange::Unchanged => "unchanged".into(),
        PlanChange::Removed => format!("removed, {} end", replicas(change.from)),
    }
}

fn replicas(count: u32) -> String {
    if count == 1 {
        "1 replica".into()
    } else {
        format!("{count} replicas")
    }
}

/// What kind of service it is, where it is not the usual one.
fn kind(spec: &DeploymentSpec, name: &str) -> &'static str {
    match spec.services.get(name).map(|service| service.rtype) {
        Some(RType::Service) | None => "",
        Some(RType::Job) => " (job)",
        Some(RType::Cron) => " (by its schedule)",
        Some(RType::System) => " (on every node that fits)",
    }
}

pub fn text(spec: &DeploymentSpec, plan: &DeploymentPlan) -> String {
    let mut text = format!("deployment {}\n", plan.deployment);
    let width = plan
        .services
        .iter()
        .map(|change| change.name.len())
        .max()
        .unwrap_or(0);
    for change in &plan.services {
        text += &format!(
            "  {:width$}  {}{}",
            change.name,
            word(change),
            kind(spec, &change.name)
        );
        if !change.after.is_empty() {
            text += &format!(", after {}", change.after.join(", "));
        }
        text += "\n";
        for difference in &change.differences {
            text += &format!("  {:width$}    {difference}\n", "");
        }
        for note in &change.notes {
            text += &format!("  {:width$}    {note}\n", "");
        }
        for waiting in &change.waiting {
            text += &format!(
                "  {:width$}  {} not placed: {}\n",
                "",
                replicas(waiting.slots),
                waiting.why
            );
        }
    }
    let mut nodes: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for placement in &plan.placements {
        nodes
            .entry(placement.node_id)
            .or_default()
            .push(placement.replica.clone());
    }
    for (node, ids) in nodes {
        text += &format!("node {node}: {}\n", shorten(&ids));
    }
    if !plan.stops.is_empty() {
        text += &format!("would end: {}\n", shorten(&plan.stops));
    }
    text
}

/// A line for people: the first names and how many more there are.
fn shorten(ids: &[String]) -> String {
    const SHOWN_MAX: usize = 12;
    let shown = ids.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    match ids.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
