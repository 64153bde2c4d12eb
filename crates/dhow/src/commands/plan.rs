//! `dhow plan FILE`: what a deployment would change and where its replicas would go. Changes nothing.
//!
//! Where no daemon answers, it plans for this machine alone, as a fresh single node would.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use dhow_core::command::{Command, Entry, NodeCommand};
use dhow_core::dry_run::{Change, DryRun, ServiceChange, dry_run};
use dhow_core::ids::{NodeId, Term};
use dhow_core::spec::{DeploymentSpec, RType};
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_core::step::step;
use dhow_core::time::ClusterTime;
use dhow_wire::parse_deployment;
use serde_json::json;

use crate::exit::Exit;
use crate::{host, input, output};

/// Show what a deployment would change and where its replicas would go
///
/// Nothing is changed. Where no daemon answers, the plan is made for this machine alone.
#[derive(clap::Args)]
pub struct Args {
    /// The deployment file; `-` is the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the plan as JSON on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let spec = match read(&args.file) {
        Ok(spec) => Arc::new(spec),
        Err(findings) => {
            output::findings(&findings);
            return Ok(Exit::BadInput);
        }
    };
    let state = this_machine();
    output::note("no daemon answers: planning for this machine alone");
    let run = match dry_run(&state, &spec) {
        Ok(run) => run,
        Err(refused) => {
            output::error(&anyhow::anyhow!(
                "`{}` cannot be deployed: {refused}",
                spec.deployment
            ));
            return Ok(Exit::BadInput);
        }
    };
    if args.json {
        output::data(&format!("{:#}\n", as_json(&spec, &run)))?;
    } else {
        output::data(&as_text(&spec, &run))?;
    }
    Ok(Exit::Done)
}

fn read(file: &std::path::Path) -> Result<DeploymentSpec, dhow_wire::Findings> {
    let input = input::read(file)?;
    parse_deployment(&input.text, &input.name, &|name| std::env::var(name).ok())
}

/// The state of a fresh single node.
fn this_machine() -> State {
    let info = NodeInfo {
        role: NodeRole::Peer,
        api_addr: None,
        os: host::OS.into(),
        arch: host::ARCH.into(),
        labels: Arc::default(),
        capacity: host::capacity(),
        runs_replicas: true,
    };
    let command = Command::Node(NodeCommand::Register {
        node: NodeId(1),
        info: Arc::new(info),
    });
    let mut state = State::default();
    // Registering the first node of an empty state is never refused.
    let _ = step(
        &mut state,
        &Entry {
            time: ClusterTime(0),
            term: Term(0),
            request: None,
            command,
        },
    );
    state
}

fn word(change: &ServiceChange) -> String {
    match change.change {
        Change::New => format!("new, {}", replicas(change.to)),
        Change::Rolls => format!(
            "replaces its replicas, {} to {}",
            change.from,
            replicas(change.to)
        ),
        Change::Scales => format!("scales from {} to {}", change.from, change.to),
        Change::InPlace => "changes without a restart".into(),
        Change::Unchanged => "unchanged".into(),
        Change::Removed => format!("removed, {} end", replicas(change.from)),
    }
}

fn replicas(count: u32) -> String {
    if count == 1 {
        "1 replica".into()
    } else {
        format!("{count} replicas")
    }
}

fn as_text(spec: &DeploymentSpec, run: &DryRun) -> String {
    let mut text = format!("deployment {}\n", spec.deployment);
    let width = run
        .services
        .iter()
        .map(|change| change.name.as_str().len())
        .max()
        .unwrap_or(0);
    for change in &run.services {
        let kind = match change.rtype {
            RType::Service => "",
            RType::Job => " (job)",
            RType::Cron => " (by its schedule)",
            RType::System => " (on every node that fits)",
        };
        text += &format!("  {:width$}  {}{kind}", change.name.as_str(), word(change));
        if !change.after.is_empty() {
            let after: Vec<&str> = change.after.iter().map(|name| name.as_str()).collect();
            text += &format!(", after {}", after.join(", "));
        }
        text += "\n";
        for waiting in &change.waiting {
            text += &format!(
                "  {:width$}  {} not placed: {}\n",
                "",
                replicas(waiting.slots),
                waiting.why
            );
        }
    }
    let mut nodes: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
    for (name, node) in &run.placements {
        nodes.entry(*node).or_default().push(name.id());
    }
    for (node, ids) in nodes {
        text += &format!("node {node}: {}\n", shorten(&ids));
    }
    if !run.stops.is_empty() {
        let ids: Vec<String> = run.stops.iter().map(ToString::to_string).collect();
        text += &format!("would end: {}\n", shorten(&ids));
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

fn as_json(spec: &DeploymentSpec, run: &DryRun) -> serde_json::Value {
    let services: Vec<_> = run.services.iter().map(service_json).collect();
    let placements: Vec<_> = run
        .placements
        .iter()
        .map(|(name, node)| {
            json!({ "service": name.service, "role": name.role, "replica": name.index, "id": name.id(), "node_id": node })
        })
        .collect();
    let stops: Vec<String> = run.stops.iter().map(ToString::to_string).collect();
    json!({ "deployment": spec.deployment, "services": services, "placements": placements, "stops": stops })
}

fn service_json(change: &ServiceChange) -> serde_json::Value {
    let word = match change.change {
        Change::New => "new",
        Change::Rolls => "rolls",
        Change::Scales => "scales",
        Change::InPlace => "in_place",
        Change::Unchanged => "unchanged",
        Change::Removed => "removed",
    };
    let waiting: Vec<_> = change
        .waiting
        .iter()
        .map(|waiting| {
            json!({ "role": waiting.role, "replicas": waiting.slots, "reason": waiting.why.to_string(), "why": waiting.why })
        })
        .collect();
    json!({
        "name": change.name, "change": word, "from": change.from, "to": change.to,
        "after": change.after, "unplaced": waiting,
    })
}
