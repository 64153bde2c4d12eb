//! Waits until a deployment is stable, and says what holds it up if it is not.
//!
//! The API's progress stream, which the command line follows, and whoever deploys inside this process call it. It is
//! woken by changes of the state and looks again at least every half second; it never changes anything.

mod last_words;
mod verdict;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use dhow_core::spec::{DeploymentSpec, RType, ScaleSpec, ServiceSpec, SpecVersion};
use dhow_core::state::{Deployment, State};
use dhow_wire::stabilization::{Evaluation, evaluate};
use dhow_wire::{ServiceHealthSummary, StabilizationResult};

use crate::plane::services::{ServiceManager, ServiceSum};

pub use watch::{ProgressEvent, ProgressWatch};

/// The longest time between two looks: the safety net behind the wake-ups.
pub const LOOK_AGAIN_MS: u64 = 500;

/// Waits until every service of the spec has the replicas that it should have and they are healthy. Looks at least
/// once, even with a timeout of zero.
pub async fn wait_for_stabilization(
    manager: &ServiceManager,
    spec: &DeploymentSpec,
    timeout: Duration,
) -> StabilizationResult {
    let clock = manager.clock();
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let deadline_ms = clock.monotonic_ms().saturating_add(timeout_ms);
    let mut states = manager.view().states();
    loop {
        let state = states.borrow_and_update().clone();
        let evaluation = match evaluation(&state, spec).into_ready() {
            Ok(result) => return result,
            Err(evaluation) => evaluation,
        };
        let now_ms = clock.monotonic_ms();
        if now_ms >= deadline_ms {
            return timed_out(manager, &state, spec.deployment.as_str(), evaluation).await;
        }
        let look_at_ms = deadline_ms.min(now_ms.saturating_add(LOOK_AGAIN_MS));
        let is_over = tokio::select! {
            changed = states.changed() => changed.is_err(),
            () = clock.sleep_until_monotonic(look_at_ms) => false,
        };
        if is_over {
            // The server is shutting down: nothing changes any more.
            return timed_out(manager, &state, spec.deployment.as_str(), evaluation).await;
        }
    }
}

/// The evaluation as the result after the timeout, with the last words of what failed.
async fn timed_out(
    manager: &ServiceManager,
    state: &State,
    deployment: &str,
    evaluation: Evaluation,
) -> StabilizationResult {
    let failing: Vec<&ServiceHealthSummary> = evaluation.failing().collect();
    let mut logs = last_words::of_services(manager, state, deployment, &failing).await;
    evaluation.into_timed_out(|name| logs.remove(name).unwrap_or_else(|| Ok(Vec::new())))
}

/// Whether a spec is stable now, and how its services are.
fn evaluation(state: &State, spec: &DeploymentSpec) -> Evaluation {
    evaluate(observe(state, spec))
}

/// The current spec of a deployment with the counts that it has been scaled to since.
fn as_scaled(state: &State, deployment: &Deployment) -> DeploymentSpec {
    let services = deployment.services.iter().filter_map(|(name, id)| {
        let service = state.service(*id).filter(|service| !service.removing)?;
        let mut spec = service.spec()?.as_ref().clone();
        for group in &mut spec.replica_groups {
            let role = service.role_id(&group.role);
            group.count = role.map_or(group.count, |role| service.count(role));
        }
        if service.stopped.is_some() {
            spec.replica_groups.clear();
        }
        if spec.replica_groups.is_empty() {
            spec.scale = ScaleSpec::Fixed {
                replicas: match service.stopped {
                    Some(_) => 0,
                    None => service.count_total(),
                },
            };
        }
        Some((name.clone(), Arc::new(spec)))
    });
    DeploymentSpec {
        version: SpecVersion::V1,
        deployment: deployment.name.clone(),
        services: services.collect(),
        scaled: Default::default(),
        configs: Default::default(),
    }
}

/// What there is of each service of the spec; nothing of one that the cluster does not know yet.
fn observe(state: &State, spec: &DeploymentSpec) -> Vec<ServiceHealthSummary> {
    let services = spec.services.iter();
    let observed = services.map(|(name, wanted)| {
        let Some(service) = state.service_named(&spec.deployment, name) else {
            let desired = wanted.desired_total_at_first();
            return ServiceHealthSummary {
                // Nothing runs of it: nobody has said that it is healthy.
                healthy: desired == 0,
                ..ServiceHealthSummary::from_nodes(name.as_str(), wanted, desired, [])
            };
        };
        let sum = ServiceSum::of(state, service);
        let desired = desired(wanted, sum.desired);
        sum.summary_for(service, desired)
    });
    observed.collect()
}

/// By the spec; where it leaves the count to others, what they say.
fn desired(spec: &ServiceSpec, wanted_now: u32) -> u32 {
    match spec.rtype {
        RType::System | RType::Job | RType::Cron => return wanted_now,
        RType::Service => {}
    }
    match spec.scale {
        _ if !spec.replica_groups.is_empty() => spec.desired_total_at_first(),
        ScaleSpec::Fixed { .. } | ScaleSpec::Manual { .. } => spec.scale.desired_at_first(),
        // The scaler may have asked for more by now.
        ScaleSpec::Adaptive { .. } => wanted_now.max(spec.scale.desired_at_first()),
    }
}
