//! When each cron service fires next. No clock: the time is given.

use std::collections::BTreeMap;

use dhow_core::ids::ServiceId;
use dhow_core::spec::check::CronSchedule;
use dhow_core::spec::{Concurrency, Missed, RType};
use dhow_core::state::{Request, Service, State};

use super::calendar::{self, Calendar};
use crate::clock::shown_utc;

/// Whose requests the firings are.
const PRINCIPAL: &str = "cron";
/// A firing that lies further ahead than this was made by a clock that was wrong: it is not waited for. Less is what a
/// clock is set right by now and then, and the runs of that time have been.
const AHEAD_MAX_SECS: i64 = 15 * 60;
/// What comes later than this was missed: no server led, or its clock was set forward. The change of a leader takes less.
const LATE_MAX_SECS: i64 = 60;
/// A clock that is behind the last firing by more than this is worth a word.
const BEHIND_SAID_SECS: i64 = 60;

/// A firing whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub service: ServiceId,
    pub scheduled_unix_secs: i64,
    /// The one before it in the schedule.
    pub follows_unix_secs: Option<i64>,
    /// It is too late for it, and the service does not make up for that.
    pub is_missed: bool,
}

struct Row {
    schedule: String,
    zone: Option<String>,
    missed: Missed,
    calendar: Calendar,
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
    pub zone: Option<String>,
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
    let forbids = service
        .spec()
        .is_none_or(|spec| spec.concurrency() == Concurrency::Forbid);
    let left_out_unix_secs = missed.filter(|_| forbids && state.has_run_under_way(service));
    Some(Outlook {
        waits_for_unix_secs: Some(row.last_unix_secs).filter(|last| *last > now_unix_secs),
        next_unix_secs: match left_out_unix_secs {
            Some(_) => row.next_after(now_unix_secs),
            None => row.next_unix_secs,
        },
        left_out_unix_secs,
        schedule: row.schedule,
        zone: row.zone,
    })
}

/// The next moments of a schedule, so many at most.
pub(crate) fn coming(service: &Service, after_unix_secs: i64, most: usize) -> Vec<i64> {
    let Some((calendar, _)) = calendar_of(service) else {
        return Vec::new();
    };
    let mut at = after_unix_secs;
    let mut found = Vec::new();
    while found.len() < most
        && let Some(next) = calendar.next_after(at)
    {
        found.push(next);
        at = next;
    }
    found
}

/// What a service's schedule says; none where it has none, or one that this version cannot read.
fn calendar_of(service: &Service) -> Option<(Calendar, String)> {
    let spec = service.spec()?;
    let text = spec.schedule.clone()?;
    let schedule = match CronSchedule::parse(&text) {
        Ok(schedule) => schedule,
        Err(problem) => {
            let error = problem.message;
            tracing::warn!(service = %service.key, schedule = text, error, "a schedule cannot be read");
            return None;
        }
    };
    let zone = calendar::zone(spec.zone.as_deref());
    if zone.is_none() {
        let zone = spec.zone.as_deref();
        tracing::warn!(service = %service.key, zone, "this server does not know the zone of a schedule");
    }
    let calendar = Calendar {
        schedule,
        zone: zone?,
    };
    Some((calendar, text))
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
            due.extend(row.due(service.id, now_unix_secs));
            self.rows.insert(service.id, row);
        }
        due
    }

    /// The next moment of any schedule.
    pub fn next_unix_secs(&self) -> Option<i64> {
        self.rows.values().filter_map(|row| row.next_unix_secs).min()
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
    service.rtype() == RType::Cron && !service.is_off()
}

fn is_same(row: &Row, service: &Service) -> bool {
    service.spec().is_some_and(|spec| {
        let as_before = (&spec.zone, spec.missed()) == (&row.zone, row.missed);
        as_before && spec.schedule.as_deref() == Some(row.schedule.as_str())
    })
}

impl Row {
    fn new(state: &State, service: &Service, now_unix_secs: i64) -> Option<Self> {
        let (calendar, schedule) = calendar_of(service)?;
        let spec = service.spec()?;
        let mut row = Self {
            schedule,
            zone: spec.zone.clone(),
            missed: spec.missed(),
            calendar,
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
    fn due(&self, service: ServiceId, now_unix_secs: i64) -> Option<Due> {
        let next = self.next_unix_secs.filter(|next| *next <= now_unix_secs)?;
        let last = self.calendar.last_until(now_unix_secs);
        let due_unix_secs = last.unwrap_or(next).max(next);
        let is_late = now_unix_secs.saturating_sub(due_unix_secs) > LATE_MAX_SECS;
        Some(Due {
            service,
            scheduled_unix_secs: due_unix_secs,
            follows_unix_secs: self.calendar.last_until(due_unix_secs.saturating_sub(1)),
            is_missed: is_late && self.missed == Missed::Skip,
        })
    }

    fn next_after(&self, unix_secs_then: i64) -> Option<i64> {
        self.calendar.next_after(unix_secs_then)
    }
}

/// Where counting begins: behind the last firing that the state remembers, but not before the present revision was
/// deployed. Where it has run and no firing is remembered, people have started it, or that is forgotten: then behind its
/// last run, before which a leader has seen to all that was due. Better a run too few than one twice.
fn begins_unix_secs(state: &State, service: &Service, now_unix_secs: i64) -> i64 {
    let current = state
        .deployment(&service.key.deployment)
        .and_then(|known| known.current());
    let deployed = current.map_or(now_unix_secs, |record| record.wall_unix_secs);
    let (first, last) = (request(service.id, 0), request(service.id, i64::MAX));
    let remembered = state.requests.range(first..=last).next_back();
    let by_request = remembered.and_then(|(request, _)| request.key.rsplit('/').next()?.parse::<i64>().ok());
    // What lies further ahead was noted by a clock that was wrong.
    let noted = service
        .due_times
        .last_until(now_unix_secs.saturating_add(AHEAD_MAX_SECS));
    let fired = by_request.max(noted);
    match fired {
        Some(fired) => fired.max(deployed),
        None if service.cron_runs > 0 => {
            let last = service.runs.last();
            let began_unix_ms = last.and_then(|run| state.clock_marks.wall_unix_ms(run.began));
            began_unix_ms.map_or(now_unix_secs, |began| began.div_euclid(1_000).max(deployed))
        }
        None => deployed,
    }
}
