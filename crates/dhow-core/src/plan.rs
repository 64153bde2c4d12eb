//! The planner: what to do next, given a state. It runs for the leader alone, on a snapshot, beside the
//! reducer. It changes nothing; its commands carry what it read and `step` checks them again.
//!
//! Work is proportional to what changed: the [`PlanCache`] follows the difference between snapshots and only
//! services that were touched, whose time has come or that wait for room are looked at again.

mod cache;
mod canary;
mod depends;
mod displace;
mod failure;
mod jobs;
mod moving;
mod nodes;
mod placing;
mod plain;
mod refresh;
mod removal;
mod report;
mod rules;
mod service;
mod settings;
mod settled;
mod slots;
mod summary;
mod system;
mod together;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use crate::command::PlanCommand;
use crate::ids::{DeploymentName, NodeId, ReplicaKey, ServiceId};
use crate::state::State;
use crate::time::ClusterTime;

pub use cache::{CanaryBook, PlanCache};
pub use nodes::node_row;
pub use report::{Mate, PlanReport, ServiceReport, Waiting, Why};
pub(crate) use system::system_nodes;

/// What to propose, and what was not done and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub commands: Vec<PlanCommand>,
    pub report: PlanReport,
    /// When to plan again although nothing has happened: a deadline or a wait that ends then.
    pub wake: Option<ClusterTime>,
}

/// Placements of one plan. The next plan goes on where this one ended; 20,000 are 20 log entries of 1,000,
/// about 20 KiB each, and some tens of milliseconds of planning.
pub const PLACEMENTS_PER_PLAN_MAX: u32 = 20_000;
/// Placements of one command: an entry of the log stays far below its limit of 512 KiB.
pub const PLACEMENTS_PER_COMMAND_MAX: usize = 1_000;

/// Plans from a snapshot. The same state, time and figures of canaries give the same plan, whatever else the cache holds.
pub fn plan_next(state: &State, cache: &mut PlanCache, now: ClusterTime) -> Plan {
    cache.refresh(state, now);
    let due = cache.due(state);
    let mut planner = Planner {
        state,
        cache,
        now,
        commands: Vec::new(),
        placements_left: PLACEMENTS_PER_PLAN_MAX,
        failed: BTreeSet::new(),
        moving: BTreeSet::new(),
        plain: None,
        placed: BTreeMap::new(),
        homes: together::Homes::new(),
    };
    for service in due {
        if planner.placements_left == 0 {
            break;
        }
        planner.plan_service(service);
    }
    // A plan that was cut off has not looked at every service: what is at rest shows in the next one.
    if planner.placements_left > 0 {
        planner.finish_deployments();
    }
    planner.finish_drains();
    let commands = planner.commands;
    cache.take_back_reservations();
    Plan {
        commands,
        report: cache.report(),
        wake: cache.next_wake(),
    }
}

/// One run of the planner.
struct Planner<'a> {
    state: &'a State,
    cache: &'a mut PlanCache,
    now: ClusterTime,
    commands: Vec<PlanCommand>,
    placements_left: u32,
    /// Deployments whose revision this plan gives up: one cause is enough.
    failed: BTreeSet<DeploymentName>,
    /// Replicas that this plan tries on another node: they speak against no version yet.
    moving: BTreeSet<ReplicaKey>,
    /// Looked up once a replica is placed.
    plain: Option<plain::PlainNodes>,
    /// Where this plan has placed replicas, of services that rules of others or their own are about.
    placed: BTreeMap<ServiceId, Vec<NodeId>>,
    homes: together::Homes,
}

impl Planner<'_> {
    /// Plans one service and notes whether it must be looked at again.
    fn plan_service(&mut self, id: ServiceId) {
        let before = self.commands.len();
        self.cache.begin(id);
        if let Some(service) = self.state.service(id).cloned() {
            self.service(&service);
        }
        let acted = self.commands.len() > before;
        self.cache.end(id, acted);
    }

    fn push(&mut self, command: PlanCommand) {
        self.commands.push(command);
    }
}
