//! Schedules and their runs.

use dhow_core::spec::{Concurrency, Missed, RType};
use dhow_core::state::{RunOutcome, ScheduleRun, Service, State};
use dhow_wire::api::{CronStatus, RunState, RunStatus};

use super::wall_times::WallTimes;
use crate::plane::cron;

/// Replicas of a run that are named.
const NAMED_MAX: usize = 100;

/// None for what is no schedule.
pub(super) fn status(times: &WallTimes<'_>, service: &Service, next: usize) -> Option<CronStatus> {
    let spec = service.spec().filter(|spec| spec.rtype == RType::Cron)?;
    if service.removing {
        return None;
    }
    let concurrency = match spec.concurrency() {
        Concurrency::Allow => "allow",
        Concurrency::Forbid => "forbid",
        Concurrency::Replace => "replace",
    };
    let missed = match spec.missed() {
        Missed::Skip => "skip",
        Missed::Once => "once",
    };
    Some(CronStatus {
        deployment: service.key.deployment.to_string(),
        service: service.key.service.to_string(),
        schedule: spec.schedule.clone().unwrap_or_default(),
        zone: spec.zone.clone().unwrap_or_else(|| "UTC".into()),
        concurrency: concurrency.into(),
        missed: missed.into(),
        keep: u32::try_from(spec.job.kept_runs()).unwrap_or(u32::MAX),
        next_unix_secs: match service.stopped {
            Some(_) => Vec::new(),
            None => cron::coming(service, times.now_unix_secs(), next),
        },
        runs: service
            .runs
            .iter()
            .rev()
            .map(|run| run_status(times, service, run))
            .collect(),
    })
}

fn run_status(times: &WallTimes<'_>, service: &Service, run: &ScheduleRun) -> RunStatus {
    let at = |then| times.unix_secs(&service.key.deployment, then);
    RunStatus {
        run: run.number,
        state: run.end.map_or(RunState::Running, |end| state_of(end.outcome)),
        due_unix_secs: run.due_unix_secs,
        began_unix_secs: at(run.began),
        ended_unix_secs: run.end.and_then(|end| at(end.at)),
        done: done(times.state, service, run),
        desired: run.count_total(),
        replicas: replicas(times.state, service, run),
    }
}

fn state_of(outcome: RunOutcome) -> RunState {
    match outcome {
        RunOutcome::Done => RunState::Done,
        RunOutcome::Failed => RunState::Failed,
        RunOutcome::Late => RunState::Late,
        RunOutcome::Replaced => RunState::Replaced,
        RunOutcome::Stopped => RunState::Stopped,
    }
}

fn done(state: &State, service: &Service, run: &ScheduleRun) -> u32 {
    let before = service.done.iter().filter(|slot| run.has(**slot)).count();
    let present = state.replicas_of(service.id);
    let present = present.filter(|(key, replica)| run.has(key.slot) && replica.is_completed());
    u32::try_from(before + present.count()).unwrap_or(u32::MAX)
}

fn replicas(state: &State, service: &Service, run: &ScheduleRun) -> Vec<String> {
    let all = state.replicas_of(service.id).filter(|(key, _)| run.has(key.slot));
    let mut ids: Vec<String> = all
        .filter_map(|(key, _)| Some(state.replica_name(key)?.id()))
        .take(NAMED_MAX)
        .collect();
    ids.dedup();
    ids
}
