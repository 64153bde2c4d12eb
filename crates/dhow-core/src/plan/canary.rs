//! Plans a service whose new version is tried by a few replicas beside all of the old one. Each of the two is kept as a
//! service of its own would be; the gates of the canary say when one takes the other's place.

use std::collections::BTreeSet;

use super::Planner;
use super::report::{ServiceReport, Why};
use super::service::Carried;
use super::slots::decide;
use super::view::{Line, View};
use crate::command::PlanCommand;
use crate::ids::{Generation, Slot};
use crate::rollout::{CanaryLook, Gate, Passage, canary_passage};
use crate::state::{Phase, Service};
use crate::time::ClusterTime;

impl Planner<'_> {
    pub(super) fn service_with_canary(&mut self, service: &Service, base: Generation) {
        // What is remembered is of slots with one version each.
        self.cache.summaries.remove(&service.id);
        let state = self.state;
        let mut report = ServiceReport::default();
        if let Some(mut view) = View::of_line(state, service, self.now, Line::Base(base)) {
            self.note_surge(&mut view);
            self.carry(&view, decide(state, &view), &mut report);
        }
        let count = service.canary_count() as usize;
        let slots: BTreeSet<Slot> = service.wanted_slots().take(count).collect();
        let Some(view) = View::of_line(state, service, self.now, Line::Canary(slots)) else {
            return;
        };
        let Carried { all_placed, .. } = self.carry(&view, decide(state, &view), &mut report);
        self.move_failing(&view);
        self.settings(&view, &mut report);
        self.pass_gates(&view, &mut report);
        self.judge(&view, all_placed, &report);
        self.cache.report_service(service.id, report);
    }

    /// Asks the gates, and proposes a judgement where there is one.
    fn pass_gates(&mut self, view: &View<'_>, report: &mut ServiceReport) {
        let service = view.service;
        let Some(rollout) = &service.rollout else { return };
        let deployment = self.state.deployment(&service.key.deployment);
        let is_open = deployment.is_some_and(|known| known.phase == Phase::Deploying);
        let wanted = view.slots.iter().filter(|(slot, _)| view.wants(*slot));
        let (mut count, mut proven, mut since) = (0, 0, ClusterTime::default());
        for (_, slot) in wanted {
            count += 1;
            let mut fresh = slot.fresh.iter().filter(|seen| seen.available);
            if let Some(seen) = fresh.next() {
                proven += 1;
                since = since.max(proven_since(view, seen.replica.healthy_since));
            }
        }
        let look = CanaryLook {
            rollout,
            spec: &view.spec().rollout,
            wanted: count,
            proven,
            proven_since: (proven == count).then_some(since),
            has_endpoints: !view.spec().endpoints.is_empty(),
            figures: self.cache.figures_of(service),
            now: self.now,
        };
        let at = match canary_passage(&look) {
            _ if !is_open => None,
            Passage::Waits(at, until) => {
                if let Some(until) = until {
                    self.cache.wake_at(service.id, until);
                }
                Some(at)
            }
            Passage::Judged(judgement) => {
                self.push(PlanCommand::JudgeCanary {
                    service: service.id,
                    generation: service.target,
                    judgement,
                });
                None
            }
        };
        let why = match at {
            Some(at) => Why::AtGate { at },
            None if service.held => Why::Paused,
            None => Why::AtGate {
                at: Gate::CanaryErrors.waits("the canary is being judged"),
            },
        };
        for slot in service.wanted_slots() {
            if let Some(role) = service.role(slot.role) {
                report.add(role, slot, why.clone());
            }
        }
    }
}

/// Since when a replica that can be relied on could be.
fn proven_since(view: &View<'_>, healthy_since: Option<ClusterTime>) -> ClusterTime {
    let span = view.spec().rollout.min_healthy;
    healthy_since.map_or(view.now, |since| since.after(span))
}
