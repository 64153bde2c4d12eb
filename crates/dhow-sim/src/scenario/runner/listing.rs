//! Listings of the simulated cluster, made as the API makes them.

use std::collections::BTreeMap;

use dhow_core::ids::NodeId;
use dhow_core::plan::{PlanCache, plan_next};
use dhow_core::time::ClusterTime;
use dhow_core::usage::{EndpointRate, NodeUsage, ReplicaUsage};
use dhow_server::plane::log::Leadership;
use dhow_server::plane::runtime::Observed;
use dhow_server::plane::services::Listings;

use super::Runner;

impl Runner {
    /// What the API would serve once the planner has looked at the present state.
    pub(super) fn listed<T>(&self, show: impl FnOnce(&Listings<'_>) -> T) -> T {
        let lab = &self.lab;
        let plan = plan_next(&lab.state, &mut PlanCache::default(), lab.now);
        show(&Listings {
            state: &lab.state,
            report: &plan.report,
            // No lease is kept here.
            observed: &self.observed(),
            leadership: Leadership {
                term: lab.term.0,
                leader: Some(lab.leader.0),
                is_here: true,
            },
            now: lab.now,
            now_unix_ms: i64::try_from(lab.now.0).unwrap_or(i64::MAX),
            began: ClusterTime(0),
        })
    }

    /// What nodes would have told, for the loads of the scenario.
    fn observed(&self) -> Observed {
        let (observed, state) = (Observed::default(), &self.lab.state);
        let mut told: BTreeMap<NodeId, NodeUsage> = BTreeMap::new();
        for (id, load) in &self.lab.loads {
            let Some(service) = state.service(*id) else {
                continue;
            };
            let running: Vec<_> = state.replicas_of(*id).collect();
            for (place, (key, replica)) in running.iter().enumerate() {
                // The first one has what cannot be divided.
                let share = |all: u64| match (place, running.len() as u64) {
                    (0, count) => all / count + all % count,
                    (_, count) => all / count,
                };
                let used = ReplicaUsage {
                    cpu_milli: share(load.cpu_milli),
                    memory_bytes: share(load.memory_bytes),
                    started_unix_secs: None,
                };
                let usage = told.entry(replica.node).or_default();
                usage
                    .replicas
                    .extend(state.replica_name(key).map(|name| (name, used)));
            }
            let first = state.nodes.keys().next().copied().unwrap_or(NodeId(1));
            told.entry(first).or_default().endpoints.push(EndpointRate {
                service: service.key.clone(),
                endpoint: "http".into(),
                requests_milli: load.requests_milli,
                errors_milli: 0,
                in_flight: load.in_flight,
                waiting: load.waiting,
            });
        }
        for (node, usage) in told {
            observed.used(state, node, usage, 0);
        }
        observed
    }

    /// The wall clock of a scenario begins with its cluster's time.
    pub(super) fn wall_unix_secs(&self) -> i64 {
        i64::try_from(self.lab.now.0 / 1_000).unwrap_or(i64::MAX)
    }
}
