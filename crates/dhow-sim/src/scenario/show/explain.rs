//! `explain`: where a service's replicas are, and why those that are missing are.

use dhow_core::ids::{DeploymentName, ReplicaKey, ServiceName, replica_id};
use dhow_core::plan::{PlanCache, Waiting, plan_next};
use dhow_core::state::{Replica, Service, State, Wanted};
use dhow_core::time::ClusterTime;

pub(in crate::scenario) fn explain(
    state: &State,
    now: ClusterTime,
    deployment: &DeploymentName,
    name: &ServiceName,
) -> Vec<String> {
    let Some(service) = state.service_named(deployment, name) else {
        return vec![format!("deployment `{deployment}` has no service `{name}`")];
    };
    let mut lines: Vec<String> = state
        .replicas_of(service.id)
        .map(|(key, replica)| present(state, key, replica))
        .collect();
    let report = plan_next(state, &mut PlanCache::default(), now).report;
    if let Some(report) = report.services.get(&service.id) {
        let mut waiting: Vec<&Waiting> = report.waiting.iter().collect();
        waiting.sort_by_key(|waiting| waiting.first);
        lines.extend(waiting.into_iter().map(|waiting| missing(service, waiting)));
    }
    if lines.is_empty() {
        lines.push(format!("{} has no replicas and asks for none", service.key));
    }
    lines
}

fn present(state: &State, key: &ReplicaKey, replica: &Replica) -> String {
    let id = state.replica_name(key).map(|name| name.id()).unwrap_or_default();
    let machine = &replica.machine;
    let mut text = format!(
        "{id}#{} is {} on node {}",
        key.generation,
        machine.state.word(),
        replica.node
    );
    if replica.wanted == Wanted::Stop {
        text.push_str(" and is to end");
    }
    match (&machine.message, machine.exit) {
        (Some(message), _) => text.push_str(&format!(": {message}")),
        (None, Some(exit)) => text.push_str(&format!(": it {exit}")),
        (None, None) => {}
    }
    text
}

fn missing(service: &Service, waiting: &Waiting) -> String {
    let first = replica_id(&service.key.service, &waiting.role, waiting.first.index);
    let others = match waiting.slots {
        0 | 1 => String::new(),
        slots => format!(" and {} more", slots - 1),
    };
    format!("{first}{others}: {}", waiting.why)
}
