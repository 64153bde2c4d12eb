//! The planner: what to do next, given a state. It runs for the leader alone, on a snapshot, beside the
//! reducer. It changes nothing; its commands carry what it read and `step` checks them again.

mod report;

use crate::command::PlanCommand;
use crate::state::{Service, State};
use crate::time::ClusterTime;

pub use report::PlanReport;

/// What to propose, and what was not done and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub commands: Vec<PlanCommand>,
    pub report: PlanReport,
    /// When to plan again although nothing has happened: a deadline or a wait that ends then.
    pub wake: Option<ClusterTime>,
}

/// What the planner remembers between two plans. It only makes planning faster: a warm cache plans what a
/// cold one does.
#[derive(Debug, Default)]
pub struct PlanCache {}

/// Plans from a snapshot.
pub fn plan_next(_state: &State, _cache: &mut PlanCache, _now: ClusterTime) -> Plan {
    Plan::default()
}

pub(crate) fn system_nodes(_: &State, _: &Service) -> u32 {
    0
}
