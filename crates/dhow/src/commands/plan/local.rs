//! A plan without a daemon: for this machine alone, as a fresh single node would make it.

use std::sync::Arc;

use dhow_core::command::{Command, Entry, NodeCommand, Refused};
use dhow_core::dry_run::{DryRun, ServiceChange, dry_run};
use dhow_core::ids::{NodeId, Term, replica_id};
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_core::step::step;
use dhow_core::time::ClusterTime;
use dhow_wire::api::{DeploymentPlan, PlannedPlacement, PlannedService, PlannedWait};

use crate::host;

pub fn plan(spec: &DeploymentSpec) -> Result<DeploymentPlan, Refused> {
    let run = dry_run(&this_machine(), &Arc::new(spec.clone()))?;
    Ok(document(spec, &run))
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

fn document(spec: &DeploymentSpec, run: &DryRun) -> DeploymentPlan {
    let placed = run.placements.iter();
    DeploymentPlan {
        deployment: spec.deployment.to_string(),
        services: run.services.iter().map(service).collect(),
        placements: placed
            .map(|(name, node)| PlannedPlacement {
                replica: name.id(),
                node_id: node.0,
            })
            .collect(),
        stops: run.stops.iter().map(|name| name.id()).collect(),
    }
}

fn service(change: &ServiceChange) -> PlannedService {
    let waiting = change.waiting.iter().map(|waiting| PlannedWait {
        first: replica_id(&change.name, &waiting.role, waiting.first.index),
        slots: waiting.slots,
        why: waiting.why.to_string(),
    });
    PlannedService {
        name: change.name.to_string(),
        change: change.change.into(),
        from: change.from,
        to: change.to,
        after: change.after.iter().map(ToString::to_string).collect(),
        waiting: waiting.collect(),
    }
}
