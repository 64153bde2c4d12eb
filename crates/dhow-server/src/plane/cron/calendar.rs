//! A schedule on the calendar of its zone: which moment comes next, and which was the last.
//!
//! A schedule names times that a clock on the wall shows. One that the clock leaves out, because it is set forward, comes at
//! the end of what is left out; one that it shows twice comes the first time. So each time comes once, in order.

use dhow_core::spec::check::{CronSchedule, TimeOfDay};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};

/// Days that are looked at: between two days of a schedule lie eight years at most, where one of them is 29 February and
/// a century is no leap year.
const DAYS_MAX: usize = 8 * 366;

const MIDNIGHT: TimeOfDay = (0, 0, 0);
const LAST_TIME: TimeOfDay = (23, 59, 59);

/// The zone of this name, where the calendar knows it.
pub(super) fn zone(name: Option<&str>) -> Option<TimeZone> {
    match name {
        None => Some(TimeZone::UTC),
        Some(name) => TimeZone::get(name).ok(),
    }
}

/// A schedule and the clock that it is read off.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    pub schedule: CronSchedule,
    pub zone: TimeZone,
}

impl Calendar {
    /// The first moment after another one. None where the calendar ends.
    pub fn next_after(&self, unix_secs: i64) -> Option<i64> {
        let then = self.zone.to_datetime(Timestamp::from_second(unix_secs).ok()?);
        let (mut date, mut time) = (then.date(), Some(time_of(then)));
        for _ in 0..DAYS_MAX {
            while let Some(found) = time
                .filter(|_| self.is_on(date))
                .and_then(|time| self.schedule.first_time(time))
            {
                let at = self.moment(date, found)?;
                if at > unix_secs {
                    return Some(at);
                }
                // Now, or shown a second time.
                time = second_after(found);
            }
            (date, time) = (date.tomorrow().ok()?, Some(MIDNIGHT));
        }
        None
    }

    /// The last moment that is not after another one.
    pub fn last_until(&self, unix_secs: i64) -> Option<i64> {
        let (mut date, mut time) = {
            let shown = self.last_shown(unix_secs)?;
            (shown.date(), Some(time_of(shown)))
        };
        for _ in 0..DAYS_MAX {
            while let Some(found) = time
                .filter(|_| self.is_on(date))
                .and_then(|time| self.schedule.last_time(time))
            {
                let at = self.moment(date, found)?;
                if at <= unix_secs {
                    return Some(at);
                }
                time = second_before(found);
            }
            (date, time) = (date.yesterday().ok()?, Some(LAST_TIME));
        }
        None
    }

    /// The latest time that the clock has shown by then: while an hour is shown again, that is the end of the hour.
    fn last_shown(&self, unix_secs: i64) -> Option<DateTime> {
        let at = Timestamp::from_second(unix_secs).ok()?;
        let shown = self.zone.to_datetime(at);
        let ambiguous = self.zone.to_ambiguous_timestamp(shown);
        let AmbiguousOffset::Fold { before, .. } = ambiguous.offset() else {
            return Some(shown);
        };
        if ambiguous.earlier().ok()? >= at {
            return Some(shown);
        }
        let set_back = self
            .zone
            .preceding(at.checked_add(jiff::SignedDuration::from_secs(1)).ok()?)
            .next()?;
        Some(before.to_datetime(set_back.timestamp()))
    }

    fn is_on(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset();
        self.schedule.is_on(
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
            weekday.unsigned_abs(),
        )
    }

    /// When the clock shows a time for the first time, or would have.
    fn moment(&self, date: Date, (hour, minute, second): TimeOfDay) -> Option<i64> {
        let small = |number: u8| i8::try_from(number).ok();
        let shown = date.at(small(hour)?, small(minute)?, small(second)?, 0);
        let ambiguous = self.zone.to_ambiguous_timestamp(shown);
        let first = ambiguous.earlier().ok()?;
        let at = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => first,
            AmbiguousOffset::Gap { .. } => self.zone.following(first).next()?.timestamp(),
        };
        Some(at.as_second())
    }
}

fn time_of(at: DateTime) -> TimeOfDay {
    (
        at.hour().unsigned_abs(),
        at.minute().unsigned_abs(),
        at.second().unsigned_abs(),
    )
}

/// None at the end of a day.
fn second_after((hour, minute, second): TimeOfDay) -> Option<TimeOfDay> {
    match (hour, minute, second) {
        LAST_TIME => None,
        (hour, 59, 59) => Some((hour + 1, 0, 0)),
        (hour, minute, 59) => Some((hour, minute + 1, 0)),
        (hour, minute, second) => Some((hour, minute, second + 1)),
    }
}

/// None at the beginning of a day.
fn second_before((hour, minute, second): TimeOfDay) -> Option<TimeOfDay> {
    match (hour, minute, second) {
        MIDNIGHT => None,
        (hour, 0, 0) => Some((hour - 1, 59, 59)),
        (hour, minute, 0) => Some((hour, minute - 1, 59)),
        (hour, minute, second) => Some((hour, minute, second - 1)),
    }
}

#[cfg(test)]
mod tests;
