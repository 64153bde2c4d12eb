//! Plans one service: what goes, what comes, what is replaced, and whether it is done.

use super::Planner;
use super::report::ServiceReport;
use super::slots::{Decisions, Leaving, decide};
use super::view::View;
use crate::command::{PlanCommand, StopReason};
use crate::ids::ReplicaKey;
use crate::spec::RType;
use crate::state::Service;

/// What came of decisions.
pub(super) struct Carried {
    /// Every slot that needs a replica got a node.
    pub all_placed: bool,
    /// There is nothing left to do.
    pub settled: bool,
}

impl Planner<'_> {
    pub(super) fn service(&mut self, service: &Service) {
        if service.removing {
            self.remove_service(service);
            return;
        }
        if service.stopped.is_some() {
            self.stopped_service(service);
            return;
        }
        let state = self.state;
        if !service.released && !self.release(service) {
            // What runs goes on running; nothing new is started before its turn.
            self.report_dependencies(service);
            self.judge_waiting(service);
            return;
        }
        if service.rtype() == RType::System {
            self.system_service(service);
            return;
        }
        if self.end_late(service) {
            return;
        }
        if let Some(base) = service.canary_base() {
            self.service_with_canary(service, base);
            return;
        }
        let mut summary = self.cache.summaries.remove(&service.id).unwrap_or_default();
        let view = View::of_open(state, service, self.now, &mut summary);
        self.cache.summaries.insert(service.id, summary);
        let Some(mut view) = view else { return };
        self.note_surge(&mut view);
        let decisions = decide(state, &view);
        self.carry_out(&view, decisions);
    }

    /// Nothing of it is started, and nothing of it fails. It is at rest once its last replica has ended.
    fn stopped_service(&mut self, service: &Service) {
        self.cache.summaries.remove(&service.id);
        let state = self.state;
        let Some(view) = View::of(state, service, self.now) else {
            return;
        };
        let mut report = ServiceReport::default();
        let Carried { settled, .. } = self.carry(&view, decide(state, &view), &mut report);
        let mut left = state.replicas_of(service.id);
        if settled && left.all(|(_, replica)| replica.machine.state.is_ended()) {
            self.cache.settled.insert(service.id);
        }
        self.cache.report_service(service.id, report);
    }

    fn carry_out(&mut self, view: &View<'_>, decisions: Decisions) {
        let service = view.service;
        let mut report = ServiceReport::default();
        let Carried { all_placed, settled } = self.carry(view, decisions, &mut report);
        self.move_failing(view);
        // The runs of a schedule are no part of a revision: each has its own end.
        let is_cron = service.rtype() == RType::Cron;
        let at_rest = self.settings(view, &mut report);
        let is_late = service.late.is_some();
        if is_cron || (settled && at_rest && !is_late) {
            self.cache.settled.insert(service.id);
        } else {
            self.judge(view, all_placed, &report);
        }
        self.cache.report_service(service.id, report);
    }

    /// Ends and places what was decided, and notes what waits.
    pub(super) fn carry(
        &mut self,
        view: &View<'_>,
        decisions: Decisions,
        report: &mut ServiceReport,
    ) -> Carried {
        let service = view.service;
        let Decisions {
            surplus,
            replaced,
            draining,
            leaving,
            lost,
            missing,
            reopen,
            wake,
            waiting,
            settled,
        } = decisions;
        self.stop(service, surplus, StopReason::ScaledDown);
        self.stop(service, replaced, StopReason::Replaced);
        self.stop(service, draining, StopReason::Draining);
        self.stop(service, lost, StopReason::NodeLost);
        for (slot, why) in waiting {
            if let Some(role) = service.role(slot.role) {
                report.add(role, slot, why);
            }
        }
        if reopen {
            self.push(PlanCommand::OpenGeneration {
                service: service.id,
                generation: service.target,
            });
        }
        let all_placed = reopen || self.place_missing(view, &missing, report);
        self.leave(view, leaving, report);
        if let Some(at) = wake {
            self.cache.wake_at(service.id, at);
        }
        Carried {
            all_placed,
            settled: settled && missing.is_empty(),
        }
    }

    /// Ends replicas on nodes that drain before others take their places, where there is such a place. One that
    /// nobody else takes stays where it is.
    fn leave(&mut self, view: &View<'_>, leaving: Vec<Leaving>, report: &mut ServiceReport) {
        for Leaving { slot, replicas, why } in leaving {
            if self.has_place(view, slot, report) {
                self.stop(view.service, replicas, why);
            }
        }
    }

    pub(super) fn stop(&mut self, service: &Service, keys: Vec<ReplicaKey>, why: StopReason) {
        for part in keys.chunks(super::PLACEMENTS_PER_COMMAND_MAX) {
            self.push(PlanCommand::Stop {
                service: service.id,
                generation: service.target,
                replicas: part.to_vec(),
                why,
            });
        }
    }
}
