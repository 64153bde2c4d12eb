//! Listings of the simulated cluster, made as the API makes them.

use dhow_core::plan::{PlanCache, plan_next};
use dhow_core::time::ClusterTime;
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
            // Nothing is measured here, and no lease is kept.
            observed: &Observed::default(),
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

    /// The wall clock of a scenario begins with its cluster's time.
    pub(super) fn wall_unix_secs(&self) -> i64 {
        i64::try_from(self.lab.now.0 / 1_000).unwrap_or(i64::MAX)
    }
}
