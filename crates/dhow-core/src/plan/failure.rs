//! When a revision is given up: its replicas keep failing, are not healthy in time, or nothing moves.

use super::Planner;
use super::report::{ServiceReport, Why};
use super::slots::tolerated;
use super::view::{Seen, View};
use crate::command::PlanCommand;
use crate::replica::ReplicaState;
use crate::rollout::Gate;
use crate::spec::OnTimeout;
use crate::state::{Deployment, Phase, RevisionOutcome, Service};
use crate::time::ClusterTime;

/// Failures in a row of one new replica that give a revision up which has a good one before it: with the
/// default back-off about seven seconds.
const FAILURES_TO_REVERT: u32 = 3;
/// The same where there is nothing to go back to: about half a minute, time for what it needs to come up.
const FAILURES_TO_FAIL: u32 = 5;

/// Why a revision is given up, and whether its version is to blame.
struct Cause {
    text: String,
    of_version: bool,
}

impl Cause {
    fn of_version(text: String) -> Self {
        Self {
            text,
            of_version: true,
        }
    }

    fn of_nodes(text: String) -> Self {
        Self {
            text,
            of_version: false,
        }
    }
}

impl View<'_> {
    /// Whether a replica has failed as often, or is as late, as takes a version back.
    pub(super) fn has_failed(&self, seen: &Seen<'_>) -> bool {
        let machine = &seen.replica.machine;
        let is_late = self.now >= healthy_by(self, seen) && seen.replica.healthy_since.is_none();
        let is_over = machine.state == ReplicaState::Failed || machine.failures >= FAILURES_TO_REVERT;
        !seen.available && !seen.is_lost() && !self.spec().runs_to_completion() && (is_over || is_late)
    }
}

/// Whether the rollout waits for a person, for time or for those that have begun.
fn waits_at_gate(report: &ServiceReport) -> bool {
    let mut waiting = report.waiting.iter();
    waiting.any(|waiting| match &waiting.why {
        Why::AtGate { at } => match at.gate {
            Gate::Paused | Gate::CanaryErrors | Gate::Promotion => true,
            Gate::CanaryHealthy | Gate::Wave => false,
        },
        Why::Unplaced { .. }
        | Why::RoomToCome { .. }
        | Why::WaitsFor { .. }
        | Why::WaitsForStopped { .. }
        | Why::OldStopping { .. }
        | Why::NodeMayReturn { .. }
        | Why::NotRescheduled { .. }
        | Why::VolumeLost { .. }
        | Why::NoNodeForAll { .. }
        | Why::TurnToCome
        | Why::LeavesLater { .. }
        | Why::Paused
        | Why::ReplacementUnproven { .. }
        | Why::WorkToCome { .. }
        | Why::TriesSettings { .. } => false,
    })
}

impl Planner<'_> {
    /// Judges a service that is not settled.
    pub(super) fn judge(&mut self, view: &View<'_>, all_placed: bool, report: &ServiceReport) {
        let service = view.service;
        // A rollout that a person stopped goes neither on nor back.
        let Some(deployment) = self.judged(service).filter(|_| service.paused_by().is_none()) else {
            return;
        };
        let failures_max = if can_revert(&deployment) {
            FAILURES_TO_REVERT
        } else {
            FAILURES_TO_FAIL
        };
        let fresh = view
            .slots
            .iter()
            .filter(|(slot, _)| view.wants(*slot))
            .flat_map(|(_, slot)| &slot.fresh);
        let mut spared = tolerated(view);
        let mut cause: Option<Cause> = late(service).map(Cause::of_version);
        for seen in fresh.filter(|seen| !self.moving.contains(&seen.key)) {
            let failing = self.failing(view, seen, failures_max);
            if failing.is_some() && spared > 0 {
                spared -= 1;
                continue;
            }
            cause = cause.or(failing.map(Cause::of_version));
            if cause.is_none() && !seen.available && !seen.has_ended() {
                self.cache.wake_at(service.id, healthy_by(view, seen));
            }
        }
        // Whoever tries settings runs on: that they are tried again costs nothing, and a port may be free by then.
        cause = cause.or_else(|| self.settings_late(view).map(Cause::of_nodes));
        if cause.is_none() && waits_at_gate(report) {
            return;
        }
        let deadline = moved(view).after(view.spec().rollout.progress_deadline);
        if cause.is_none() && is_at_work(view) {
            return;
        }
        if cause.is_none() && self.now >= deadline {
            let why = report
                .waiting
                .first()
                .map(|waiting| format!(": {}", waiting.why))
                .unwrap_or_default();
            let what = if all_placed {
                "is not done"
            } else {
                "is not placed"
            };
            // What finds no place is nobody's fault but the nodes'.
            cause = Some(Cause::of_nodes(format!(
                "`{}` {what} and nothing has moved for {}{why}",
                service.key.service,
                view.spec().rollout.progress_deadline
            )));
        }
        match cause {
            Some(cause) => self.give_up(&deployment, service, cause),
            None => self.cache.wake_at(service.id, deadline),
        }
    }

    /// Judges a service that waits for others.
    pub(super) fn judge_waiting(&mut self, service: &Service) {
        let Some(deployment) = self.judged(service) else {
            return;
        };
        for dependency in self.dependencies(service) {
            let waited = self.now >= service.asked.after(dependency.timeout);
            let counts = waited && self.stopped_one(service, &dependency).is_none();
            if counts && dependency.on_timeout == OnTimeout::Fail && !self.is_met(service, &dependency) {
                let cause = format!(
                    "`{}` waited {} for `{}`",
                    service.key.service, dependency.timeout, dependency.service
                );
                self.give_up(&deployment, service, Cause::of_nodes(cause));
                return;
            }
        }
    }

    /// The service's deployment, while there is something to judge.
    pub(super) fn judged(&self, service: &Service) -> Option<Deployment> {
        let deployment = self.state.deployment(&service.key.deployment)?;
        let open = matches!(deployment.phase, Phase::Deploying | Phase::Reverting);
        (open && !self.failed.contains(&deployment.name)).then(|| deployment.as_ref().clone())
    }

    fn failing(&self, view: &View<'_>, seen: &Seen<'_>, failures_max: u32) -> Option<String> {
        let machine = &seen.replica.machine;
        let rollout = &view.spec().rollout;
        let late = self.now >= healthy_by(view, seen);
        let unfinished = !seen.available && !seen.has_ended() && !seen.is_lost();
        // A replica that was healthy and has a hiccup late in a long rollout is not a late one.
        let never_healthy = seen.replica.healthy_since.is_none();
        // Work takes as long as it takes, and where the spec counts the attempts, the last of them decides.
        let job = view.spec().runs_to_completion();
        let has_tries = job && view.spec().restart.max_attempts.is_some();
        let at_work = job && (seen.replica.is_running() || machine.failures > 0 || machine.restarts > 0);
        let how = if machine.state == ReplicaState::Failed {
            "failed".to_owned()
        } else if machine.failures >= failures_max && !has_tries {
            format!("failed {} times in a row", machine.failures)
        } else if late && unfinished && never_healthy && !at_work {
            format!("was not healthy within {}", rollout.healthy_deadline)
        } else {
            return None;
        };
        let what = machine
            .trouble()
            .map(|what| format!(": {what}"))
            .unwrap_or_default();
        let id = self.state.replica_name(&seen.key)?.id();
        let node = seen.replica.node;
        let before = self.failed_before(view, seen);
        Some(format!("`{id}` on node {node} {how}{before}{what}"))
    }

    fn give_up(&mut self, deployment: &Deployment, service: &Service, cause: Cause) {
        self.failed.insert(deployment.name.clone());
        self.push(PlanCommand::Fail {
            deployment: deployment.name.clone(),
            revision: deployment.revision,
            service: service.id,
            cause: cause.text.into(),
            of_version: cause.of_version,
        });
    }
}

/// A job that was ended by its deadline.
fn late(service: &Service) -> Option<String> {
    service.late?;
    let deadline = service.spec()?.job.deadline?;
    let name = &service.key.service;
    Some(format!(
        "`{name}` was not done by its deadline, {deadline} after it began"
    ))
}

/// Until when a replica has to be healthy. One that was there long before has its time anew from when the service
/// last moved: its deployment asked for something then. One that tries new settings has it from when it was told to.
fn healthy_by(view: &View<'_>, seen: &Seen<'_>) -> ClusterTime {
    let (given, progressed) = (view.spec().rollout.healthy_deadline, view.service.progressed);
    let trial = view.service.trial(seen.key.generation, seen.replica);
    let told = trial.map_or(seen.replica.placed, |(_, trial)| trial.began);
    let by = seen.replica.placed.max(told).after(given);
    if by <= progressed {
        return progressed.after(given);
    }
    by
}

/// When the service last came nearer to its end. A job's replicas do so by themselves, one by one.
fn moved(view: &View<'_>) -> ClusterTime {
    let job = view.spec().runs_to_completion();
    let fresh = view.slots.iter().flat_map(|(_, slot)| &slot.fresh);
    let ends = fresh.filter(|_| job).map(|seen| seen.replica.since);
    ends.fold(view.service.progressed, ClusterTime::max)
}

/// Whether a job's replica works, or is about to try again: nobody can say how long that takes.
fn is_at_work(view: &View<'_>) -> bool {
    let works = |seen: &Seen<'_>| match seen.replica.machine.state {
        ReplicaState::Running | ReplicaState::Backoff => true,
        ReplicaState::Pending
        | ReplicaState::Pulling
        | ReplicaState::Starting
        | ReplicaState::Stopping
        | ReplicaState::Exited
        | ReplicaState::Failed
        | ReplicaState::Lost => false,
    };
    let mut fresh = view.slots.iter().flat_map(|(_, slot)| &slot.fresh);
    view.spec().runs_to_completion() && fresh.any(works)
}

/// Whether giving the revision up brings a good one back.
fn can_revert(deployment: &Deployment) -> bool {
    let rolling = deployment
        .current()
        .is_some_and(|record| record.outcome == RevisionOutcome::Rolling);
    rolling && deployment.last_good.is_some() && deployment.phase == Phase::Deploying
}
