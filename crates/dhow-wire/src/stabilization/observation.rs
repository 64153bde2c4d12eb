//! What the waiting loop has seen of each service, and the verdict on it.

use dhow_core::spec::ServiceSpec;

use super::message::timed_out_message;
use super::result::{ServiceHealthSummary, StabilizationOutcome, StabilizationResult};
use crate::scale::NodeServiceState;

/// The last log lines of a service's replicas, or why there are none, in words.
pub type ServiceLogs = Result<Vec<String>, String>;

/// One service at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceObservation {
    pub name: String,
    pub desired: u32,
    /// Over every node that has the service.
    pub running: u32,
    /// Whether every node that runs replicas says so.
    pub healthy: bool,
    pub endpoints: Vec<String>,
    /// A job's replicas that have done their work.
    pub done: Option<u32>,
}

impl ServiceObservation {
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
            done: None,
        }
    }
}

/// The verdict: the summaries in the order of the observations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    services: Vec<ServiceHealthSummary>,
}

/// Looks at every service once.
pub fn evaluate(observations: impl IntoIterator<Item = ServiceObservation>) -> Evaluation {
    let summary = |seen: ServiceObservation| ServiceHealthSummary {
        healthy: seen.desired == 0 || seen.healthy,
        name: seen.name,
        running: seen.running,
        desired: seen.desired,
        endpoints: seen.endpoints,
        done: seen.done,
        updated: None,
        outdated: None,
    };
    Evaluation {
        services: observations.into_iter().map(summary).collect(),
    }
}

impl Evaluation {
    pub fn services(&self) -> &[ServiceHealthSummary] {
        &self.services
    }

    /// The services that hold the deployment up: those whose logs are worth fetching.
    pub fn failing(&self) -> impl Iterator<Item = &ServiceHealthSummary> {
        self.services.iter().filter(|service| service.is_failing())
    }

    pub fn is_ready(&self) -> bool {
        self.failing().next().is_none()
    }

    /// The result, if this evaluation is a ready one.
    pub fn into_ready(self) -> Result<StabilizationResult, Self> {
        if !self.is_ready() {
            return Err(self);
        }
        Ok(StabilizationResult {
            outcome: StabilizationOutcome::Ready,
            services: self.services,
        })
    }

    /// The result after the timeout. `logs_of` is asked once for each failing service.
    pub fn into_timed_out(self, logs_of: impl FnMut(&str) -> ServiceLogs) -> StabilizationResult {
        StabilizationResult {
            outcome: StabilizationOutcome::TimedOut {
                message: timed_out_message(&self.services, logs_of),
            },
            services: self.services,
        }
    }
}
