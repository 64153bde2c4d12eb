//! How much of a job is under way at a time, and until when.

use std::collections::BTreeMap;

use super::Planner;
use super::report::Why;
use super::slots::Decisions;
use super::view::{SlotView, View};
use crate::command::{JobCommand, PlanCommand};
use crate::ids::Slot;
use crate::spec::RType;
use crate::state::Service;

/// Holds slots back that would be more than the job may have under way at a time.
pub(super) fn hold_back(view: &View<'_>, decisions: &mut Decisions) {
    let Some(most) = view.spec().parallelism() else {
        return;
    };
    // Of a schedule, each run has its own.
    let run_of = |slot: Slot| view.service.run_of(slot).map(|run| run.number);
    let mut under_way: BTreeMap<Option<u32>, u32> = BTreeMap::new();
    for (slot, _) in view.slots.iter().filter(|(_, slot)| is_under_way(slot)) {
        *under_way.entry(run_of(*slot)).or_default() += 1;
    }
    let is_begun = |slot: &Slot| {
        let found = view.slots.binary_search_by_key(slot, |(slot, _)| *slot);
        found.is_ok_and(|place| is_under_way(&view.slots[place].1))
    };
    let mut held = Vec::new();
    decisions.missing.retain(|slot| {
        if is_begun(slot) {
            return true;
        }
        let count = under_way.entry(run_of(*slot)).or_default();
        let begins = *count < most;
        match begins {
            true => *count += 1,
            false => held.push(*slot),
        }
        begins
    });
    for slot in held {
        decisions.wait(slot, Why::WorkToCome { most });
    }
}

/// Whether something of the slot may be running.
fn is_under_way(slot: &SlotView<'_>) -> bool {
    let all = [&slot.fresh, &slot.old, &slot.stopping];
    all.into_iter().flatten().any(|seen| !seen.has_ended())
}

impl Planner<'_> {
    /// Ends what has not come to its end by its deadline. Whether there is nothing else to plan.
    pub(super) fn end_late(&mut self, service: &Service) -> bool {
        let Some(spec) = service.spec() else { return false };
        let Some(deadline) = spec.job.deadline.filter(|_| spec.runs_to_completion()) else {
            return false;
        };
        let begun: Vec<_> = match spec.rtype {
            RType::Cron => service
                .open_runs()
                .map(|run| (Some(run.number), run.began))
                .collect(),
            RType::Job if self.has_work(service) => vec![(None, service.asked)],
            RType::Job | RType::Service | RType::System => Vec::new(),
        };
        let before = self.commands.len();
        for (run, began) in begun {
            let ends = began.after(deadline);
            if ends > self.now {
                self.cache.wake_at(service.id, ends);
                continue;
            }
            self.push(PlanCommand::Job(JobCommand::Late {
                service: service.id,
                generation: service.target,
                run,
            }));
        }
        self.commands.len() > before
    }

    /// Whether a slot of a job has not done its work.
    fn has_work(&self, service: &Service) -> bool {
        let Some(view) = View::of(self.state, service, self.now) else {
            return false;
        };
        let mut wanted = view.slots.iter().filter(|(slot, _)| service.wants(*slot));
        wanted.any(|(place, slot)| {
            let is_done = slot.fresh.iter().any(|seen| seen.replica.is_completed());
            !is_done && !service.is_done(*place)
        })
    }
}
