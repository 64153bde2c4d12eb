//! The runs of schedules: they begin for due times and for people, and end with their last replica, by their deadline or
//! for the next one. Of jobs: the deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::{OrdSet, Vector};

use super::deployment::{present, service_in};
use super::{jobs, replicas};
use crate::change::{Change, ChangeSink, LeftOut, ReplicaChange, ServiceChange, StopCause};
use crate::command::{JobCommand, Missing, Outcome, Refused, Stale};
use crate::ids::{DeploymentName, Generation, NodeId, ReplicaKey, ServiceId, ServiceName, Slot};
use crate::spec::{Concurrency, RType, ServiceSpec};
use crate::state::{RunEnd, RunOutcome, ScheduleRun, Service, State, Wanted};

pub(super) fn apply(
    state: &mut State,
    command: &JobCommand,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    super::needs_level(state, jobs::SINCE_LEVEL)?;
    match *command {
        JobCommand::Due {
            service,
            due_unix_secs,
            follows_unix_secs,
            is_missed,
        } => {
            let due = Due {
                unix_secs: due_unix_secs,
                follows: follows_unix_secs,
                is_missed,
            };
            due_comes(state, service, &due, sink)
        }
        JobCommand::Late {
            service,
            generation,
            run,
        } => {
            let found = state.service(service).ok_or(Missing::ServiceId(service))?;
            if found.target != generation || found.removing {
                return Err(Stale::Generation.into());
            }
            match run {
                Some(run) => run_late(state, service, run, sink)?,
                None => job_late(state, service, sink)?,
            }
            Ok(Outcome::Done)
        }
    }
}

/// A moment of a schedule.
struct Due {
    unix_secs: i64,
    follows: Option<i64>,
    is_missed: bool,
}

/// The service's spec, where it is a schedule.
fn scheduled(service: &Service) -> Option<Arc<ServiceSpec>> {
    let spec = service.spec().filter(|spec| spec.rtype == RType::Cron)?;
    (!service.is_off()).then(|| spec.clone())
}

fn due_comes(
    state: &mut State,
    id: ServiceId,
    due: &Due,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let service = state.service(id).ok_or(Missing::ServiceId(id))?;
    let spec = scheduled(service).ok_or(Stale::SlotUnwanted)?;
    if service.due_times.has(due.unix_secs) {
        return Err(Refused::NotNow("this moment of the schedule was dealt with"));
    }
    adopt_last_run(state, id);
    if let Some(service) = replicas::service_mut(state, id) {
        service.due_times.settle(due.unix_secs, due.follows);
    }
    let under_way = state.service(id).and_then(|service| refuses(service, &spec));
    let left_out = match due.is_missed {
        true => Some(LeftOut::Missed),
        false => under_way,
    };
    if let Some(why) = left_out {
        let due_unix_secs = due.unix_secs;
        let change = ServiceChange::RunLeftOut { due_unix_secs, why };
        sink.tell(state, Change::Service(id, change));
        return Ok(Outcome::Done);
    }
    let run = begin(state, id, &spec, Some(due.unix_secs), sink);
    Ok(Outcome::RunBegan { run })
}

/// A person wants a run now.
pub(super) fn start(
    state: &mut State,
    deployment: &DeploymentName,
    service: &ServiceName,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let id = service_in(state, present(state, deployment)?, service)?;
    super::needs_level(state, jobs::SINCE_LEVEL)?;
    let service = state.service(id).ok_or(Missing::ServiceId(id))?;
    let name = service.key.service.clone();
    if service.stopped.is_some() {
        return Err(Refused::Stopped(service.key.clone()));
    }
    let spec = scheduled(service).ok_or_else(|| Refused::NoSchedule(name.clone()))?;
    adopt_last_run(state, id);
    match state.service(id).and_then(|service| refuses(service, &spec)) {
        Some(LeftOut::UnderWay { run }) => return Err(Refused::RunUnderWay { service: name, run }),
        Some(LeftOut::TooMany { runs: max }) => return Err(Refused::TooManyRuns { service: name, max }),
        Some(LeftOut::Missed) | None => {}
    }
    let run = begin(state, id, &spec, None, sink);
    Ok(Outcome::RunBegan { run })
}

/// What keeps another run from beginning.
fn refuses(service: &Service, spec: &ServiceSpec) -> Option<LeftOut> {
    let open = service.open_runs().count();
    match spec.concurrency() {
        Concurrency::Replace => None,
        Concurrency::Forbid => service
            .open_runs()
            .next_back()
            .map(|open| LeftOut::UnderWay { run: open.number }),
        Concurrency::Allow => (open >= State::OPEN_RUNS_MAX).then_some(LeftOut::TooMany { runs: open }),
    }
}

/// The run that servers of the version before have told by its first index alone.
fn adopt_last_run(state: &mut State, id: ServiceId) {
    let Some(service) = state.service(id) else { return };
    if !service.runs.is_empty() || service.cron_runs == 0 {
        return;
    }
    let run = ScheduleRun {
        number: service.cron_runs,
        due_unix_secs: None,
        base: service.cron_base,
        counts: service.counts.clone(),
        began: service.asked,
        end: None,
    };
    if let Some(service) = replicas::service_mut(state, id) {
        service.runs = Vector::unit(Arc::new(run));
    }
    settle(state, id, &mut ());
}

fn begin(
    state: &mut State,
    id: ServiceId,
    spec: &ServiceSpec,
    due_unix_secs: Option<i64>,
    sink: &mut dyn ChangeSink,
) -> u32 {
    if spec.concurrency() == Concurrency::Replace {
        let open = numbers(state, id, |run| run.is_open());
        for run in open {
            cut_off(state, id, run, (RunOutcome::Replaced, StopCause::NextRun), sink);
        }
    }
    let now = state.time;
    let Some(service) = replicas::service_mut(state, id) else {
        return 0;
    };
    let number = service.cron_runs.saturating_add(1);
    let after = service.runs.last().map(|run| run.base.checked_add(run.width()));
    let counts: Arc<[u32]> = service
        .roles
        .iter()
        .map(|role| spec.desired_at_first(role))
        .collect();
    let width = counts.iter().copied().max().unwrap_or(0);
    // After four thousand million replicas their numbers begin anew; what is kept of the last ones gives way.
    let base = match after {
        Some(base) => base.filter(|base| base.checked_add(width).is_some()),
        None => Some(0),
    };
    if base.is_none() {
        service.runs.clear();
    }
    let base = base.unwrap_or(0);
    service.cron_runs = number;
    service.cron_base = base;
    service.counts = counts.clone();
    service.asked = now;
    service.progressed = now;
    service.runs.push_back(Arc::new(ScheduleRun {
        number,
        due_unix_secs,
        base,
        counts,
        began: now,
        end: None,
    }));
    let change = ServiceChange::RunBegan {
        run: number,
        due_unix_secs,
    };
    sink.tell(state, Change::Service(id, change));
    // One without replicas has nothing to do.
    settle(state, id, sink);
    trim(state, id, sink);
    number
}

fn numbers(state: &State, id: ServiceId, takes: impl Fn(&ScheduleRun) -> bool) -> Vec<u32> {
    let runs = state.service(id).into_iter().flat_map(|service| &service.runs);
    runs.filter(|run| takes(run)).map(|run| run.number).collect()
}

/// Ends the runs whose last replica has ended.
pub(super) fn settle(state: &mut State, id: ServiceId, sink: &mut dyn ChangeSink) {
    let Some(service) = state.service(id).filter(|service| !service.runs.is_empty()) else {
        return;
    };
    let ended: Vec<(u32, bool)> = service
        .open_runs()
        .filter_map(|run| Some((run.number, state.run_end(service, run)?)))
        .collect();
    if ended.is_empty() {
        return;
    }
    for (run, all_done) in ended {
        let outcome = match all_done {
            true => RunOutcome::Done,
            false => RunOutcome::Failed,
        };
        end(state, id, run, outcome, sink);
    }
    trim(state, id, sink);
}

fn end(state: &mut State, id: ServiceId, number: u32, outcome: RunOutcome, sink: &mut dyn ChangeSink) {
    let at = state.time;
    if let Some(service) = replicas::service_mut(state, id)
        && let Some(run) = service.runs.iter_mut().find(|run| run.number == number)
    {
        Arc::make_mut(run).end = Some(RunEnd { at, outcome });
        service.progressed = at;
    }
    let run = number;
    sink.tell(
        state,
        Change::Service(id, ServiceChange::RunEnded { run, outcome }),
    );
}

/// Ends a run before its work is done: what is under way of it is stopped.
fn cut_off(
    state: &mut State,
    id: ServiceId,
    number: u32,
    (outcome, why): (RunOutcome, StopCause),
    sink: &mut dyn ChangeSink,
) {
    end(state, id, number, outcome, sink);
    let run = state.service(id).and_then(|service| {
        let mut runs = service.runs.iter();
        runs.find(|run| run.number == number).cloned()
    });
    if let Some(run) = run {
        stop(state, id, |slot| run.has(slot), why, sink);
    }
}

/// Stops what is under way in these slots.
fn stop(
    state: &mut State,
    id: ServiceId,
    takes: impl Fn(Slot) -> bool,
    why: StopCause,
    sink: &mut dyn ChangeSink,
) {
    let under_way: Vec<(ReplicaKey, NodeId)> = state
        .replicas_of(id)
        .filter(|(key, replica)| takes(key.slot) && replica.wanted == Wanted::Run && replica.reserves())
        .map(|(key, replica)| (*key, replica.node))
        .collect();
    for (key, node) in under_way {
        let asked = ReplicaChange::StopAsked(why);
        sink.tell(state, Change::Replica(key, node, asked));
        replicas::stop(state, &key, sink);
    }
}

/// Ends all of a service that people stop. Work that is done stays done.
pub(super) fn end_all(state: &mut State, id: ServiceId, sink: &mut dyn ChangeSink) {
    for run in numbers(state, id, |run| run.is_open()) {
        end(state, id, run, RunOutcome::Stopped, sink);
    }
    let is_work = state
        .service(id)
        .and_then(|service| service.spec())
        .is_some_and(|spec| spec.runs_to_completion());
    let all = state.replicas_of(id);
    let there: Vec<(ReplicaKey, NodeId)> = all
        .filter(|(_, replica)| replica.wanted == Wanted::Run && !(is_work && replica.is_completed()))
        .map(|(key, replica)| (*key, replica.node))
        .collect();
    for (key, node) in there {
        let asked = ReplicaChange::StopAsked(StopCause::Stopped);
        sink.tell(state, Change::Replica(key, node, asked));
        replicas::stop(state, &key, sink);
    }
}

fn run_late(state: &mut State, id: ServiceId, number: u32, sink: &mut dyn ChangeSink) -> Result<(), Refused> {
    let is_open = !numbers(state, id, |run| run.number == number && run.is_open()).is_empty();
    if !is_open {
        return Err(Stale::SlotUnwanted.into());
    }
    cut_off(state, id, number, (RunOutcome::Late, StopCause::Late), sink);
    trim(state, id, sink);
    Ok(())
}

fn job_late(state: &mut State, id: ServiceId, sink: &mut dyn ChangeSink) -> Result<(), Refused> {
    let now = state.time;
    let service = replicas::service_mut(state, id).ok_or(Missing::ServiceId(id))?;
    if service.late.is_some() || service.rtype() != RType::Job {
        return Err(Stale::SlotUnwanted.into());
    }
    service.late = Some(now);
    sink.tell(state, Change::Service(id, ServiceChange::JobLate));
    stop(state, id, |_| true, StopCause::Late, sink);
    Ok(())
}

/// What of a job is under way, where it may be only so much at a time.
#[derive(Default)]
pub(super) struct AtWork {
    most: Option<u32>,
    slots: BTreeSet<Slot>,
    /// Of a schedule, each run has its own measure.
    by_run: BTreeMap<Option<u32>, u32>,
}

impl AtWork {
    pub fn of(state: &State, service: &Service) -> Self {
        let most = service.spec().and_then(|spec| spec.parallelism());
        let mut work = Self {
            most,
            ..Self::default()
        };
        if most.is_some() {
            let all = state.replicas_of(service.id);
            let under_way = all.filter(|(_, replica)| replica.reserves());
            under_way.for_each(|(key, _)| work.add(service, key.slot));
        }
        work
    }

    fn add(&mut self, service: &Service, slot: Slot) {
        if self.slots.insert(slot) {
            let run = service.run_of(slot).map(|run| run.number);
            *self.by_run.entry(run).or_default() += 1;
        }
    }

    /// Begins with a slot.
    pub fn begin(&mut self, service: &Service, slot: Slot) -> Result<(), Stale> {
        let Some(most) = self.most else { return Ok(()) };
        let run = service.run_of(slot).map(|run| run.number);
        let beside = self.by_run.get(&run).copied().unwrap_or(0);
        if beside >= most && !self.slots.contains(&slot) {
            return Err(Stale::EnoughAtWork);
        }
        self.add(service, slot);
        Ok(())
    }
}

/// A service that is no schedule any more has no runs: what is left of them is not wanted.
pub(super) fn turned(service: &mut Service, spec: &ServiceSpec) {
    if spec.rtype != RType::Cron {
        service.runs.clear();
    }
}

/// Forgets the oldest ended runs that are not kept, with their logs.
fn trim(state: &mut State, id: ServiceId, sink: &mut dyn ChangeSink) {
    let Some(spec) = state.service(id).and_then(|service| service.spec().cloned()) else {
        return;
    };
    let ended = numbers(state, id, |run| !run.is_open());
    let beyond = ended.len().saturating_sub(spec.job.kept_runs());
    for number in ended.into_iter().take(beyond) {
        forget(state, id, number, sink);
    }
}

fn forget(state: &mut State, id: ServiceId, number: u32, sink: &mut dyn ChangeSink) {
    let Some(service) = replicas::service_mut(state, id) else {
        return;
    };
    let Some(place) = service.runs.iter().position(|run| run.number == number) else {
        return;
    };
    let run = service.runs.remove(place);
    let done: OrdSet<Slot> = service
        .done
        .iter()
        .filter(|slot| !run.has(**slot))
        .copied()
        .collect();
    service.done = done;
    let key = |slot, generation| ReplicaKey {
        service: id,
        slot,
        generation: Generation(generation),
    };
    let left: Vec<ReplicaKey> = run
        .slots()
        .flat_map(|slot| state.replicas.range(key(slot, 0)..=key(slot, u32::MAX)))
        .filter(|(_, replica)| replica.machine.state.is_ended())
        .map(|(key, _)| *key)
        .collect();
    for key in left {
        replicas::retire(state, &key, sink);
    }
}
