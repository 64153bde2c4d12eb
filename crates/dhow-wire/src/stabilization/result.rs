//! The answer to "is it stable?".

use dhow_core::spec::ServiceSpec;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::scale::NodeServiceState;

/// Whether a deployment became stable in time, with all its services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StabilizationResult {
    pub outcome: StabilizationOutcome,
    /// Every service, whatever the outcome.
    pub services: Vec<ServiceHealthSummary>,
}

/// Whether a deployment became stable in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StabilizationOutcome {
    Ready,
    TimedOut { message: String },
}

/// A service as the end of a deployment and `dhow status` show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceHealthSummary {
    pub name: String,
    pub running: u32,
    pub desired: u32,
    pub healthy: bool,
    /// `scheme://localhost:port`.
    pub endpoints: Vec<String>,
    /// A job's replicas that have done their work: they count among `running`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u32>,
    /// While replicas of another revision are still to be replaced: those that run the current one, and those others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outdated: Option<u32>,
    /// When the schedule of a `cron` service is due next; none where it never comes again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_unix_secs: Option<i64>,
    /// People have stopped it: nothing of it runs until somebody starts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StoppedService>,
}

/// By whom and since when a service is stopped, and what it has when it is started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoppedService {
    pub by: String,
    pub at_unix_secs: i64,
    /// So many replicas; absent where its nodes or its schedule say how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
}

impl ServiceHealthSummary {
    /// From what the nodes say, for a service with the count that is wanted now.
    pub fn from_nodes<'a>(
        name: &str,
        spec: &ServiceSpec,
        desired: u32,
        states: impl IntoIterator<Item = &'a NodeServiceState>,
    ) -> Self {
        let (running, healthy) = NodeServiceState::total(states);
        Self {
            name: name.into(),
            desired,
            running,
            healthy,
            endpoints: spec.endpoints.iter().map(|endpoint| endpoint.address()).collect(),
            ..Self::default()
        }
    }

    /// Whether the service holds up its deployment. One that is to have no replicas never does.
    pub fn is_failing(&self) -> bool {
        self.desired > 0 && (self.running != self.desired || !self.healthy)
    }
}
