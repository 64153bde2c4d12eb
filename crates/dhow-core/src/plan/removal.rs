//! Services that leave their deployment.

use super::Planner;
use crate::command::{PlanCommand, StopReason};
use crate::state::{Service, Wanted};

impl Planner<'_> {
    /// Ends what is left of a service, and forgets it when nothing is.
    pub(super) fn remove_service(&mut self, service: &Service) {
        let mut any = false;
        let mut keys = Vec::new();
        for (key, replica) in self.state.replicas_of(service.id) {
            any = true;
            if replica.wanted == Wanted::Run {
                keys.push(*key);
            }
        }
        self.stop(service, keys, StopReason::Removed);
        if !any {
            self.push(PlanCommand::ForgetService { service: service.id });
        }
    }
}
