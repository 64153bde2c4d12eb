//! `status`: how deployments and their services are doing.

use dhow_core::replica::ReplicaState;
use dhow_core::state::{Deployment, Phase, Service, State, Wanted};

use crate::scenario::table::table;

pub(in crate::scenario) fn status(state: &State) -> Vec<String> {
    let mut rows = Vec::new();
    for deployment in state.deployments.values() {
        let word = word(state, deployment);
        for id in deployment.services.values() {
            let Some(service) = state.service(*id) else {
                continue;
            };
            let sum = Sum::of(state, service);
            rows.push([
                deployment.name.to_string(),
                deployment.revision.to_string(),
                word.into(),
                service.key.service.to_string(),
                sum.words(),
                sum.health().into(),
            ]);
        }
    }
    if rows.is_empty() {
        return vec!["nothing is deployed".into()];
    }
    let heads = ["DEPLOYMENT", "REVISION", "STATE", "SERVICE", "RUNNING", "HEALTHY"];
    table(heads, &rows)
}

/// The phase, or that a deployment which had come to rest is not whole at the moment.
fn word(state: &State, deployment: &Deployment) -> &'static str {
    let whole = || {
        let mut services = deployment.services.values().filter_map(|id| state.service(*id));
        services.all(|service| Sum::of(state, service).is_whole())
    };
    match deployment.phase {
        Phase::Stable | Phase::Reverted if !whole() => "degraded",
        phase => phase.word(),
    }
}

/// A service's replicas, counted.
struct Sum {
    running: u32,
    done: u32,
    desired: u32,
    healthy: bool,
}

impl Sum {
    fn of(state: &State, service: &Service) -> Self {
        let mut sum = Self {
            running: 0,
            done: u32::try_from(service.done.len()).unwrap_or(u32::MAX),
            desired: state.desired(service),
            healthy: true,
        };
        for (_, replica) in state.replicas_of(service.id) {
            sum.running += u32::from(replica.is_running());
            sum.done += u32::from(replica.is_completed());
            // What ends or cannot be reached says nothing about its health; that it is missing, the count says.
            let speaks = replica.wanted == Wanted::Run && replica.machine.state != ReplicaState::Lost;
            sum.healthy &= !speaks || replica.is_healthy() || replica.is_completed();
        }
        sum
    }

    fn is_whole(&self) -> bool {
        self.healthy && self.running + self.done == self.desired
    }

    fn health(&self) -> &'static str {
        match (self.healthy, self.running + self.done) {
            (true, 0) => "-",
            (true, _) => "yes",
            (false, _) => "no",
        }
    }

    fn words(&self) -> String {
        match self.done {
            0 => format!("{}/{}", self.running, self.desired),
            done => format!("{}/{}, {done} done", self.running, self.desired),
        }
    }
}
