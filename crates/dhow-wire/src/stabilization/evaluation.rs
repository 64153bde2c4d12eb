//! The verdict on what the waiting loop has seen of each service.

use super::message::timed_out_message;
use super::result::{ServiceHealthSummary, StabilizationOutcome, StabilizationResult};

/// The last log lines of a service's replicas, or why there are none, in words.
pub type ServiceLogs = Result<Vec<String>, String>;

/// The verdict: the summaries in the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    services: Vec<ServiceHealthSummary>,
}

/// Looks at every service once. One that is to have no replicas is healthy, whatever was seen of it.
pub fn evaluate(services: impl IntoIterator<Item = ServiceHealthSummary>) -> Evaluation {
    let services = services.into_iter().map(|seen| ServiceHealthSummary {
        healthy: seen.desired == 0 || seen.healthy,
        ..seen
    });
    Evaluation {
        services: services.collect(),
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
