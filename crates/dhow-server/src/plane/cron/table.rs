//! When each cron service fires next. No clock: the time is given.

use std::collections::BTreeMap;

use dhow_core::ids::ServiceId;
use dhow_core::spec::RType;
use dhow_core::spec::check::CronSchedule;
use dhow_core::state::{Request, Service, State};

use super::calendar;
use crate::clock::shown_utc;

/// Whose requests the firings are.
const PRINCIPAL: &str = "cron";
/// A firing that lies further ahead than this was made by a clock that was wrong: it is not waited for. Less is what a
/// clock is set right by now and then, and the runs of that time have been.
const AHEAD_MAX_SECS: i64 = 15 * 60;
/// A clock that is behind the last firing by more than this is worth a word.
const BEHIND_SAID_SECS: i64 = 60;

/// A firing whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub service: ServiceId,
    pub scheduled_unix_secs: i64,
}

struct Row {
    schedule: String,
    cron: CronSchedule,
    /// The last firing that is settled, or where counting began.
    last_unix_secs: i64,
    /// None where it never comes again.
    next_unix_secs: Option<i64>,
    /// Whether it was said that the clock is behind the last firing.
    said_behind: bool,
}

/// What a schedule waits for, as `explain` tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outlook {
    pub schedule: String,
    /// None where it never comes again.
    pub next_unix_secs: Option<i64>,
    /// The last firing, where the clock has not come to it again: nothing fires before.
    pub waits_for_unix_secs: Option<i64>,
    /// The first firing that is left out, with those after it, while the last run has not ended.
    pub left_out_unix_secs: Option<i64>,
}

/// What a cron service waits for by this clock; none for what is no cron service.
pub(crate) fn outlook(state: &State, service: &Service, now_unix_secs: i64) -> Option<Outlook> {
    let mut row = is_cron(service).then(|| Row::new(state, service, now_unix_secs))??;
    row.mend(now_unix_secs);
    let missed = row.next_unix_secs.filter(|next| *next <= now_unix_secs);
    let left_out_unix_secs = missed.filter(|_| state.has_run_under_way(service));
    Some(Outlook {
        waits_for_unix_secs: Some(row.last_unix_secs).filter(|last| *last > now_unix_secs),
        next_unix_secs: match left_out_unix_secs {
            Some(_) => row.next_after(now_unix_secs),
            None => row.next_unix_secs,
        },
        left_out_unix_secs,
        schedule: row.schedule,
    })
}

/// The next run of each cron service. The leader's task for schedules keeps one.
#[derive(Default)]
pub(super) struct Table {
    rows: BTreeMap<ServiceId, Row>,
}

/// What makes a firing known again. Ordered by service, then by time.
pub(super) fn request(service: ServiceId, scheduled_unix_secs: i64) -> Request {
    Request {
        principal: PRINCIPAL.into(),
        key: format!("{:010}/{:020}", service.0, scheduled_unix_secs.max(0)).into(),
    }
}

impl Table {
    /// Takes over the schedules of the state, and says what is due.
    pub fn look(&mut self, state: &State, now_unix_secs: i64) -> Vec<Due> {
        let mut due = Vec::new();
        let mut known = std::mem::take(&mut self.rows);
        let crons = state.services.values().filter(|service| is_cron(service));
        for service in crons {
            let kept = known.remove(&service.id).filter(|row| is_same(row, service));
            let Some(mut row) = kept.or_else(|| Row::new(state, service, now_unix_secs)) else {
                continue;
            };
            row.tell_behind(service, now_unix_secs);
            row.mend(now_unix_secs);
            if let Some(scheduled_unix_secs) = row.due(now_unix_secs) {
                due.push(Due {
                    service: service.id,
                    scheduled_unix_secs,
                });
            }
            self.rows.insert(service.id, row);
        }
        due
    }

    /// A firing is settled: the next one is later.
    pub fn fired(&mut self, due: Due, now_unix_secs: i64) {
        if let Some(row) = self.rows.get_mut(&due.service) {
            row.last_unix_secs = row.last_unix_secs.max(due.scheduled_unix_secs);
            row.next_unix_secs = row.next_after(row.last_unix_secs.max(now_unix_secs));
        }
    }
}

fn is_cron(service: &Service) -> bool {
    service.rtype() == RType::Cron && !service.removing
}

fn is_same(row: &Row, service: &Service) -> bool {
    let spec = service.spec();
    spec.is_some_and(|spec| spec.schedule.as_deref() == Some(row.schedule.as_str()))
}

impl Row {
    fn new(state: &State, service: &Service, now_unix_secs: i64) -> Option<Self> {
        let schedule = service.spec()?.schedule.clone()?;
        let cron = match CronSchedule::parse(&schedule) {
            Ok(cron) => cron,
            Err(problem) => {
                let error = problem.message;
                tracing::warn!(service = %service.key, schedule, error, "a schedule cannot be read");
                return None;
            }
        };
        let mut row = Self {
            schedule,
            cron,
            last_unix_secs: begins_unix_secs(state, service, now_unix_secs),
            next_unix_secs: None,
            said_behind: false,
        };
        row.next_unix_secs = row.next_after(row.last_unix_secs);
        Some(row)
    }

    /// Says once that the clock is behind what was fired, and what comes of it.
    fn tell_behind(&mut self, service: &Service, now_unix_secs: i64) {
        let behind_secs = self.last_unix_secs.saturating_sub(now_unix_secs);
        let is_behind = behind_secs > BEHIND_SAID_SECS;
        if is_behind && !self.said_behind {
            let what = match behind_secs > AHEAD_MAX_SECS {
                true => "that clock was wrong, and the schedule goes on by the present one",
                false => "the schedule waits until the clock has come to it again",
            };
            tracing::warn!(
                service = %service.key, last = shown_utc(self.last_unix_secs), behind_secs,
                "the clock is behind the last run of a schedule: {what}"
            );
        }
        self.said_behind = is_behind;
    }

    /// A clock that was far ahead is forgotten.
    fn mend(&mut self, now_unix_secs: i64) {
        if self.last_unix_secs > now_unix_secs.saturating_add(AHEAD_MAX_SECS) {
            self.last_unix_secs = now_unix_secs;
            self.next_unix_secs = self.next_after(now_unix_secs);
        }
    }

    /// The last firing whose time has come and that is not settled; those before it are left out.
    fn due(&self, now_unix_secs: i64) -> Option<i64> {
        let next = self.next_unix_secs.filter(|next| *next <= now_unix_secs)?;
        let last = calendar::last_until(&self.cron, now_unix_secs);
        Some(last.unwrap_or(next).max(next))
    }

    fn next_after(&self, unix_secs_then: i64) -> Option<i64> {
        calendar::next_after(&self.cron, unix_secs_then)
    }
}

/// Where counting begins: behind the last firing that the state remembers, but not before the present revision was
/// deployed. Where it has fired and that is forgotten, now: better a run too few than one twice.
fn begins_unix_secs(state: &State, service: &Service, now_unix_secs: i64) -> i64 {
    let current = state
        .deployment(&service.key.deployment)
        .and_then(|known| known.current());
    let deployed = current.map_or(now_unix_secs, |record| record.wall_unix_secs);
    let (first, last) = (request(service.id, 0), request(service.id, i64::MAX));
    let remembered = state.requests.range(first..=last).next_back();
    let fired = remembered.and_then(|(request, _)| request.key.rsplit('/').next()?.parse::<i64>().ok());
    match fired {
        Some(fired) => fired.max(deployed),
        None if service.cron_runs > 0 => now_unix_secs,
        None => deployed,
    }
}
