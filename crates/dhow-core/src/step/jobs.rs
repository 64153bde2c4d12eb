//! Rules of jobs and of containers that older servers do not know.

use crate::command::Refused;
use crate::spec::DeploymentSpec;
use crate::state::State;

/// From this level on services wait for jobs to complete, and containers call services by further names.
pub(crate) const SINCE_LEVEL: u32 = 5;

/// A spec with such rules is refused until all servers know them.
pub(super) fn check_level(state: &State, spec: &DeploymentSpec) -> Result<(), Refused> {
    match spec.needs_job_rules() || spec.needs_container_rules() {
        true => super::needs_level(state, SINCE_LEVEL),
        false => Ok(()),
    }
}
