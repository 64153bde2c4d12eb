//! Moments beside another reader of the same language, and where clocks are set.

use croner::Cron;

use super::*;
use crate::clock::shown_utc;

fn calendar(schedule: &str, name: &str) -> Calendar {
    Calendar {
        schedule: CronSchedule::parse(schedule).unwrap(),
        zone: zone(Some(name)).unwrap(),
    }
}

fn secs(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_second()
}

/// What another reader of the same language says.
fn by_croner(cron: &Cron, unix_secs: i64) -> (Option<i64>, Option<i64>) {
    let then = TimeZone::UTC.to_datetime(Timestamp::from_second(unix_secs).unwrap());
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
        let (read, cron) = (calendar(schedule, "UTC"), schedule.parse::<Cron>());
        let cron = cron.unwrap();
        // Some forty years, at all times of days, weeks and months.
        for step in 0..200_i64 {
            let unix_secs = 1_700_000_000 + step * 6_283_187;
            let found = (read.next_after(unix_secs), read.last_until(unix_secs));
            assert_eq!(
                found,
                by_croner(&cron, unix_secs),
                "{schedule} at {}",
                shown_utc(unix_secs)
            );
            // At the moment itself: it was now, and the next one is later.
            let Some(next) = found.0 else { continue };
            let found = (read.next_after(next), read.last_until(next));
            assert_eq!(found, by_croner(&cron, next), "{schedule} at {}", shown_utc(next));
        }
    }
}

/// Every moment of a span, found from both sides.
fn moments(read: &Calendar, from: &str, until: &str) -> Vec<String> {
    let (mut at, until) = (secs(from) - 1, secs(until));
    let mut found = Vec::new();
    while let Some(next) = read.next_after(at).filter(|next| *next <= until) {
        for between in [at, (at + next) / 2, next - 1] {
            assert_eq!(read.next_after(between), Some(next), "after {between}");
        }
        for after in [next, next + 1] {
            let last = read.last_until(after);
            assert!(
                last >= Some(next) && last <= Some(after),
                "{last:?} until {after}"
            );
        }
        found.push(Timestamp::from_second(next).unwrap().to_string());
        at = next;
    }
    found
}

#[test]
fn a_time_that_is_left_out_comes_at_the_end_of_the_gap() {
    // 2027-03-28: from 02:00 to 03:00 in Berlin, which is 01:00 UTC.
    let night = calendar("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        moments(&night, "2027-03-27T00:00:00Z", "2027-03-29T23:00:00Z"),
        [
            "2027-03-27T01:30:00Z",
            "2027-03-28T01:00:00Z",
            "2027-03-29T00:30:00Z"
        ]
    );
    let often = calendar("*/20 * * * *", "Europe/Berlin");
    assert_eq!(
        moments(&often, "2027-03-28T00:30:00Z", "2027-03-28T01:30:00Z"),
        [
            "2027-03-28T00:40:00Z",
            "2027-03-28T01:00:00Z",
            "2027-03-28T01:20:00Z"
        ],
        "what is left out and what is due then are one"
    );
}

#[test]
fn a_time_that_is_shown_twice_comes_once() {
    // 2027-10-31: from 03:00 back to 02:00 in Berlin, at 01:00 UTC.
    let night = calendar("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        moments(&night, "2027-10-30T00:00:00Z", "2027-11-01T23:00:00Z"),
        [
            "2027-10-30T00:30:00Z",
            "2027-10-31T00:30:00Z",
            "2027-11-01T01:30:00Z"
        ]
    );
    let often = calendar("*/30 * * * *", "Europe/Berlin");
    assert_eq!(
        moments(&often, "2027-10-30T23:30:00Z", "2027-10-31T02:30:00Z"),
        [
            "2027-10-30T23:30:00Z",
            "2027-10-31T00:00:00Z",
            "2027-10-31T00:30:00Z",
            "2027-10-31T02:00:00Z",
            "2027-10-31T02:30:00Z"
        ]
    );
    assert_eq!(
        often.last_until(secs("2027-10-31T01:10:00Z")),
        Some(secs("2027-10-31T00:30:00Z"))
    );
    // Half an hour is set forward and back on Lord Howe.
    let island = calendar("45 1 * * *", "Australia/Lord_Howe");
    assert_eq!(
        moments(&island, "2027-04-03T00:00:00Z", "2027-04-04T20:00:00Z"),
        ["2027-04-03T14:45:00Z", "2027-04-04T15:15:00Z"]
    );
}

/// In every zone and year: moments come in order, and both ways lead to the same ones.
#[test]
fn both_ways_lead_to_the_same_moments() {
    for zone in [
        "Europe/Berlin",
        "America/St_Johns",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Asia/Kathmandu",
    ] {
        for schedule in ["17 */3 * * *", "*/45 0-4 * * *", "30 1,2 * * SUN"] {
            let read = calendar(schedule, zone);
            let mut at = secs("2026-09-01T00:00:00Z");
            for _ in 0..2_000 {
                let next = read.next_after(at).unwrap();
                assert!(next > at, "{zone} {schedule} {at}");
                assert_eq!(read.last_until(next), Some(next), "{zone} {schedule}");
                assert!(
                    read.last_until(next - 1).unwrap() <= at,
                    "{zone} {schedule} {next}"
                );
                at = next;
            }
        }
    }
}

#[test]
fn the_ends_of_the_calendar_are_the_ends() {
    let read = calendar("* * * * *", "UTC");
    assert_eq!(read.next_after(i64::MAX), None);
    assert_eq!(read.last_until(i64::MIN), None);
    assert_eq!(shown_utc(i64::MAX), i64::MAX.to_string());
}
