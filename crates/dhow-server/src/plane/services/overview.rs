//! The cluster at a glance: everything in numbers, and what is not well with its reason. One walk over the state, so that
//! a page of a hundred thousand replicas costs tens of milliseconds and one of ten next to nothing.

use dhow_core::plan::PlanReport;
use dhow_core::state::{Deployment, Drain, Liveness, Service, State};
use dhow_wire::DeploymentState;

use super::deployment::{message, services, state_of};
use super::progress::{trouble, waits_for};
use super::sum::ServiceSum;

/// Services of one deployment that are named for what is wrong with them.
const TROUBLES_MAX: usize = 4;

/// The cluster in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Overview {
    pub deployments: Vec<DeploymentGlance>,
    pub nodes_ready: usize,
    pub nodes_draining: usize,
    pub nodes_drained: usize,
    pub nodes_unreachable: usize,
    pub cpu_capacity_milli: u64,
    pub cpu_reserved_milli: u64,
    pub memory_capacity_bytes: u64,
    pub memory_reserved_bytes: u64,
}

/// One deployment in numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeploymentGlance {
    pub name: String,
    pub state: DeploymentState,
    pub revision: u64,
    /// When its revision was asked for, and by whom.
    pub asked_unix_secs: Option<i64>,
    pub author: String,
    pub services: usize,
    pub services_well: usize,
    pub running: u32,
    pub desired: u32,
    /// Replicas of an older revision that are still to be replaced.
    pub outdated: u32,
    /// What is wrong, or what it waits for.
    pub troubles: Vec<String>,
}

pub(super) fn overview(state: &State, report: &PlanReport) -> Overview {
    let mut overview = Overview::default();
    for node in state.nodes.values() {
        let (capacity, used) = (node.info.capacity, node.used);
        overview.cpu_reserved_milli += used.cpu_milli;
        overview.memory_reserved_bytes += used.memory_bytes;
        let count = match (node.liveness, node.drain) {
            (Liveness::Unreachable { .. }, _) => {
                overview.nodes_unreachable += 1;
                continue;
            }
            (Liveness::Ready, Drain::No) => &mut overview.nodes_ready,
            (Liveness::Ready, Drain::Draining { .. }) => &mut overview.nodes_draining,
            (Liveness::Ready, Drain::Drained { .. }) => &mut overview.nodes_drained,
        };
        *count += 1;
        overview.cpu_capacity_milli += capacity.cpu_milli;
        overview.memory_capacity_bytes += capacity.memory_bytes;
    }
    let deployments = state.deployments.values();
    overview.deployments = deployments.map(|known| glance(state, report, known)).collect();
    overview
}

fn glance(state: &State, report: &PlanReport, known: &Deployment) -> DeploymentGlance {
    let current = known.current();
    let mut glance = DeploymentGlance {
        name: known.name.to_string(),
        state: known.phase.into(),
        revision: known.revision.0,
        asked_unix_secs: current.map(|current| current.wall_unix_secs),
        author: current.map_or_else(String::new, |current| current.author.to_string()),
        services: known.services.len(),
        services_well: 0,
        running: 0,
        desired: 0,
        outdated: 0,
        troubles: message(known).into_iter().collect(),
    };
    let mut whole = true;
    for (name, service) in services(state, known) {
        let sum = ServiceSum::of(state, service);
        glance.running += sum.running_or_done();
        glance.desired += sum.desired;
        glance.outdated += sum.outdated;
        if sum.is_whole() {
            glance.services_well += 1;
            continue;
        }
        whole = false;
        if glance.troubles.len() < TROUBLES_MAX {
            let why = reason(state, report, service, &sum);
            glance.troubles.push(format!("{name}: {why}"));
        }
    }
    glance.state = state_of(state, known, whole);
    glance
}

fn reason(state: &State, report: &PlanReport, service: &Service, sum: &ServiceSum) -> String {
    let known = trouble(state, service).or_else(|| waits_for(report, service, sum));
    known.unwrap_or_else(|| format!("{} of {} run", sum.running_or_done(), sum.desired))
}
