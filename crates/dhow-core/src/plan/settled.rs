//! When a service is what others wait for, and when a deployment is done.

use super::Planner;
use super::view::View;
use crate::command::PlanCommand;
use crate::ids::DeploymentName;
use crate::spec::{Condition, RType};
use crate::state::{Deployment, Drain, Phase, RevisionOutcome, Service, State};
use crate::time::ClusterTime;

/// Whether a service is what a dependent waits for: all its slots, of its target.
pub(super) fn meets(state: &State, service: &Service, condition: Condition, now: ClusterTime) -> bool {
    if service.is_off() || service.late.is_some() {
        return false;
    }
    if service.rtype() == RType::System {
        return meets_everywhere(state, service, condition, now);
    }
    let Some(view) = View::of(state, service, now) else {
        return false;
    };
    let wanted = view.slots.iter().filter(|(slot, _)| service.wants(*slot));
    wanted.into_iter().all(|(place, slot)| {
        service.is_done(*place)
            || slot.fresh.iter().any(|seen| {
                let job = view.spec().runs_to_completion();
                match condition {
                    Condition::Started => seen.replica.is_running() || seen.replica.is_completed(),
                    Condition::Healthy | Condition::Ready if job => seen.replica.is_completed(),
                    Condition::Healthy => seen.replica.is_healthy() || seen.replica.is_completed(),
                    Condition::Ready => seen.available || seen.replica.is_completed(),
                    Condition::Completed => job && seen.replica.is_completed(),
                }
            })
    })
}

fn meets_everywhere(state: &State, service: &Service, condition: Condition, now: ClusterTime) -> bool {
    let _ = now;
    let good = state.replicas_of(service.id).filter(|(key, replica)| {
        service.is_current(key.generation)
            && match condition {
                Condition::Started => replica.is_running(),
                Condition::Healthy | Condition::Ready => replica.is_healthy(),
                // What runs on every node has no end.
                Condition::Completed => false,
            }
    });
    let good = u32::try_from(good.count()).unwrap_or(u32::MAX);
    good >= super::system_nodes(state, service)
}

impl Planner<'_> {
    /// Marks deployments stable whose services have all come to rest.
    pub(super) fn finish_deployments(&mut self) {
        let names: Vec<DeploymentName> = self.cache.under_way.iter().cloned().collect();
        for name in names {
            let Some(deployment) = self.state.deployment(&name) else {
                continue;
            };
            let at_rest = deployment
                .services
                .values()
                .all(|id| self.cache.settled.contains(id));
            let held = deployment.phase == Phase::Failed
                && deployment
                    .services
                    .values()
                    .any(|id| self.state.service(*id).is_some_and(|s| s.held));
            if at_rest && !held && !self.is_unproven(deployment) && !self.failed.contains(&name) {
                let revision = deployment.revision;
                self.push(PlanCommand::MarkStable {
                    deployment: name,
                    revision,
                });
            }
        }
    }

    /// Whether it has a version that nobody has seen run: its rollout goes on when what is stopped of it is started.
    fn is_unproven(&self, deployment: &Deployment) -> bool {
        let is_good = deployment
            .current()
            .is_some_and(|record| record.outcome == RevisionOutcome::Good);
        let mut services = deployment.services.values();
        !is_good
            && services.any(|id| {
                let service = self.state.service(*id);
                let stopped = service.filter(|service| service.stopped.is_some());
                stopped.is_some_and(|service| service.rolling || deployment.last_good.is_none())
            })
    }

    /// Nodes that were drained and have nothing left.
    pub(super) fn finish_drains(&mut self) {
        let empty: Vec<_> = self
            .cache
            .draining
            .iter()
            .filter(|id| {
                self.state.node(**id).is_some_and(|node| {
                    matches!(node.drain, Drain::Draining { .. }) && self.state.is_cleared(node)
                })
            })
            .copied()
            .collect();
        for node in empty {
            self.push(PlanCommand::DrainFinished { node });
        }
    }
}
