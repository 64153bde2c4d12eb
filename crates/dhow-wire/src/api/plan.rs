//! `dhow plan`: what a deployment file would change and where its replicas would go.

use dhow_core::dry_run::{DryRun, Prospect, ServiceProspect};
use dhow_core::ids::{DeploymentName, replica_id};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a deployment file would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeploymentPlan {
    pub deployment: String,
    pub services: Vec<PlannedService>,
    /// New replicas with their nodes. Of a service that rolls: its first step.
    pub placements: Vec<PlannedPlacement>,
    /// Ids of replicas that would end at once.
    pub stops: Vec<String>,
}

impl DeploymentPlan {
    /// What a dry run has shown.
    pub fn of(deployment: &DeploymentName, run: &DryRun) -> Self {
        let placed = run.placements.iter();
        Self {
            deployment: deployment.to_string(),
            services: run.services.iter().map(PlannedService::of).collect(),
            placements: placed
                .map(|(name, node)| PlannedPlacement {
                    replica: name.id(),
                    node_id: node.0,
                })
                .collect(),
            stops: run.stops.iter().map(|name| name.id()).collect(),
        }
    }
}

/// What a deployment file would do to one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedService {
    pub name: String,
    pub change: PlanChange,
    /// Replicas before and after.
    pub from: u32,
    pub to: u32,
    /// The services that it would wait for.
    pub after: Vec<String>,
    /// What would not be placed, and why.
    pub waiting: Vec<PlannedWait>,
    /// What differs from what it has now, in words. Values that may be passwords are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// What else should be known of it, such as a volume that it shares by name alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl PlannedService {
    fn of(change: &ServiceProspect) -> Self {
        let waiting = change.waiting.iter().map(|waiting| PlannedWait {
            first: replica_id(&change.name, &waiting.role, waiting.first.index),
            slots: waiting.slots,
            why: waiting.why.to_string(),
        });
        Self {
            name: change.name.to_string(),
            change: change.change.into(),
            from: change.from,
            to: change.to,
            after: change.after.iter().map(ToString::to_string).collect(),
            waiting: waiting.collect(),
            differences: change.differences.clone(),
            notes: change.apart.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The kind of change to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanChange {
    New,
    /// Running replicas would be replaced.
    Rolls,
    /// Only the number of replicas would change.
    Scales,
    /// Taken over by what runs.
    InPlace,
    Unchanged,
    Removed,
}

impl PlanChange {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Rolls => "rolls",
            Self::Scales => "scales",
            Self::InPlace => "in place",
            Self::Unchanged => "unchanged",
            Self::Removed => "removed",
        }
    }
}

impl From<Prospect> for PlanChange {
    fn from(change: Prospect) -> Self {
        match change {
            Prospect::New => Self::New,
            Prospect::Rolls => Self::Rolls,
            Prospect::Scales => Self::Scales,
            Prospect::InPlace => Self::InPlace,
            Prospect::Unchanged => Self::Unchanged,
            Prospect::Removed => Self::Removed,
        }
    }
}

/// A new replica and the node that it would go to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedPlacement {
    /// The replica's id inside its deployment.
    pub replica: String,
    pub node_id: u64,
}

/// Replicas that would find no node, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedWait {
    /// The id of the first of them.
    pub first: String,
    pub slots: u32,
    pub why: String,
}
