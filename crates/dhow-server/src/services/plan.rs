//! What a deployment file would change, told.

use dhow_core::dry_run::{DryRun, ServiceChange};
use dhow_core::ids::{DeploymentName, replica_id};
use dhow_wire::api::{DeploymentPlan, PlannedPlacement, PlannedService, PlannedWait};

pub(super) fn plan(deployment: &DeploymentName, run: DryRun) -> DeploymentPlan {
    DeploymentPlan {
        deployment: deployment.to_string(),
        services: run.services.iter().map(service).collect(),
        placements: run
            .placements
            .iter()
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
