//! A schedule on the calendar, in UTC: which moment comes next, and which was the last.

use dhow_core::spec::check::CronSchedule;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// Days that are looked at: between two days of a schedule lie eight years at most, where one of them is 29 February and
/// a century is no leap year.
const DAYS_MAX: usize = 8 * 366;

const LAST_TIME: (u8, u8) = (23, 59);

/// The first firing after a moment. None where the calendar ends.
pub(super) fn next_after(schedule: &CronSchedule, unix_secs: i64) -> Option<i64> {
    // It fires as a minute begins.
    let from = civil(unix_secs.div_euclid(60).checked_add(1)?.checked_mul(60)?)?;
    let (mut date, mut time) = (from.date(), time_of(from));
    for _ in 0..DAYS_MAX {
        if is_on(schedule, date)
            && let Some(time) = schedule.first_time(time.0, time.1)
        {
            return moment(date, time);
        }
        (date, time) = (date.tomorrow().ok()?, (0, 0));
    }
    None
}

/// The last firing that is not after a moment.
pub(super) fn last_until(schedule: &CronSchedule, unix_secs: i64) -> Option<i64> {
    let until = civil(unix_secs)?;
    let (mut date, mut time) = (until.date(), time_of(until));
    for _ in 0..DAYS_MAX {
        if is_on(schedule, date)
            && let Some(time) = schedule.last_time(time.0, time.1)
        {
            return moment(date, time);
        }
        (date, time) = (date.yesterday().ok()?, LAST_TIME);
    }
    None
}

fn is_on(schedule: &CronSchedule, date: Date) -> bool {
    let weekday = date.weekday().to_sunday_zero_offset();
    schedule.is_on(
        date.month().unsigned_abs(),
        date.day().unsigned_abs(),
        weekday.unsigned_abs(),
    )
}

fn time_of(at: DateTime) -> (u8, u8) {
    (at.hour().unsigned_abs(), at.minute().unsigned_abs())
}

fn civil(unix_secs: i64) -> Option<DateTime> {
    let at = jiff::Timestamp::from_second(unix_secs).ok()?;
    Some(TimeZone::UTC.to_datetime(at))
}

fn moment(date: Date, (hour, minute): (u8, u8)) -> Option<i64> {
    let (hour, minute) = (i8::try_from(hour).ok()?, i8::try_from(minute).ok()?);
    let at = TimeZone::UTC.to_timestamp(date.at(hour, minute, 0, 0)).ok()?;
    Some(at.as_second())
}

#[cfg(test)]
mod tests {
    use croner::Cron;

    use super::*;
    use crate::clock::shown_utc;

    /// What another reader of the same language says.
    fn by_croner(cron: &Cron, unix_secs: i64) -> (Option<i64>, Option<i64>) {
        let then = civil(unix_secs).unwrap();
        let secs = |at: DateTime| TimeZone::UTC.to_timestamp(at).unwrap().as_second();
        (
            cron.find_next_occurrence(&then, false).ok().map(secs),
            cron.find_previous_occurrence(&then, true).ok().map(secs),
        )
    }

    #[test]
    fn moments_are_those_of_another_reader() {
        let schedules = [
            "* * * * *",
            "*/15 8-18 * * MON-FRI",
            "0 0 1 1 *",
            "5,10-20/2 3 * feb-apr 7",
            "0 0 29 2 *",
            "59 23 31 * *",
            "0 0 31 2 MON",
            "0 12 13 * FRI",
            "30 6 */2 * *",
            "0 0 30 2 */2",
            "0 4 1-7 * SUN",
        ];
        for schedule in schedules {
            let (read, cron) = (CronSchedule::parse(schedule).unwrap(), schedule.parse::<Cron>());
            let cron = cron.unwrap();
            // Some forty years, at all times of days, weeks and months.
            for step in 0..200_i64 {
                let unix_secs = 1_700_000_000 + step * 6_283_187;
                let found = (next_after(&read, unix_secs), last_until(&read, unix_secs));
                assert_eq!(
                    found,
                    by_croner(&cron, unix_secs),
                    "{schedule} at {}",
                    shown_utc(unix_secs)
                );
                // At the moment itself: it was now, and the next one is later.
                let Some(next) = found.0 else { continue };
                let found = (next_after(&read, next), last_until(&read, next));
                assert_eq!(found, by_croner(&cron, next), "{schedule} at {}", shown_utc(next));
            }
        }
    }

    #[test]
    fn the_ends_of_the_calendar_are_the_ends() {
        let read = CronSchedule::parse("* * * * *").unwrap();
        assert_eq!(next_after(&read, i64::MAX), None);
        assert_eq!(last_until(&read, i64::MIN), None);
        assert_eq!(shown_utc(i64::MAX), i64::MAX.to_string());
    }
}
