//! How a deployment comes along, as its stream shows it.

use std::collections::BTreeMap;

use dhow_core::ids::ReplicaName;
use dhow_core::plan::PlanReport;
use dhow_core::spec::RType;
use dhow_core::state::{Deployment, Service, State, Wanted};
use dhow_wire::api::{Progress, PullingProgress, ServiceProgress};

use super::deployment::{services, state_of};
use super::sum::ServiceSum;
use crate::net::node_door::ReplicaPull;

/// How far pulls have come, by replica.
pub(crate) type Pulls = BTreeMap<ReplicaName, ReplicaPull>;

pub(super) fn progress(
    state: &State,
    report: &PlanReport,
    deployment: &Deployment,
    pulls: &Pulls,
) -> Progress {
    let sums: Vec<(&Service, ServiceSum)> = services(state, deployment)
        .map(|(_, service)| (service, ServiceSum::of(state, service)))
        .collect();
    let whole = sums.iter().all(|(_, sum)| sum.is_whole());
    Progress {
        deployment: deployment.name.to_string(),
        revision: deployment.revision.0,
        state: state_of(state, deployment, whole),
        services: sums
            .iter()
            .map(|(service, sum)| of_service(state, report, service, sum, pulls))
            .collect(),
    }
}

fn of_service(
    state: &State,
    report: &PlanReport,
    service: &Service,
    sum: &ServiceSum,
    pulls: &Pulls,
) -> ServiceProgress {
    ServiceProgress {
        name: service.key.service.to_string(),
        running: sum.running_or_done(),
        desired: sum.desired,
        healthy: sum.is_healthy(),
        healthy_count: sum.healthy_count,
        pending: sum.pending,
        pulling: (sum.pulling > 0).then(|| pulling(state, service, sum, pulls)),
        starting: sum.starting,
        failed: sum.failed,
        updated: Some(sum.updated),
        done: sum.done_of(service),
        outdated: sum.outdated,
        message: trouble(state, service)
            .or_else(|| waits_for(report, service, sum))
            .or_else(|| works(service, sum)),
    }
}

fn pulling(state: &State, service: &Service, sum: &ServiceSum, pulls: &Pulls) -> PullingProgress {
    let mut told = PullingProgress {
        replicas: sum.pulling,
        ..PullingProgress::default()
    };
    for (key, _) in state.replicas_of(service.id) {
        let pull = state.replica_name(key).and_then(|name| pulls.get(&name));
        if let Some(pull) = pull {
            told.done_bytes = told.done_bytes.saturating_add(pull.done_bytes);
            told.total_bytes = match (told.total_bytes, pull.total_bytes) {
                (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
                (known, None) | (None, known) => known,
            };
        }
    }
    told
}

/// The last words of a replica that is in trouble, or whose check has not passed yet.
pub(super) fn trouble(state: &State, service: &Service) -> Option<String> {
    let replicas = state.replicas_of(service.id);
    let mut failing = replicas.filter(|(_, replica)| {
        let machine = &replica.machine;
        let waits = replica.is_running() && machine.message.is_some();
        let fails = (machine.failures > 0 || waits) && !replica.is_healthy();
        replica.wanted == Wanted::Run && fails && !replica.is_completed()
    });
    let (key, replica) = failing.next()?;
    let what = replica.machine.trouble()?;
    Some(format!("{}: {what}", state.replica_name(key)?.id()))
}

/// A job is waited for until its work is done, however healthy it is.
fn works(service: &Service, sum: &ServiceSum) -> Option<String> {
    let is_job = service.rtype() == RType::Job;
    (is_job && sum.at_work() > 0).then(|| format!("at work, {} of {} done", sum.done, sum.desired))
}

/// What it waits for. The report may be of the revision before: what is whole waits for nothing.
pub(super) fn waits_for(report: &PlanReport, service: &Service, sum: &ServiceSum) -> Option<String> {
    if sum.is_whole() {
        return None;
    }
    let waiting = report.services.get(&service.id)?.waiting.first()?;
    Some(waiting.why.to_string())
}
