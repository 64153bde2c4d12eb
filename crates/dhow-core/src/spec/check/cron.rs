//! The cron expression: minute, hour, day of month, month, day of week, and seconds before them where six fields are
//! given. It is read here alone: for the check of a
//! deployment file, and for the schedules of a server, which has the calendar that says which day a date is.

use super::suggest::nearest;
use super::words::quoted;

/// Why a text is not a schedule.
#[derive(Debug)]
pub struct CronProblem {
    pub message: String,
    pub hint: String,
}

struct Field {
    name: &'static str,
    min: u8,
    max: u8,
    /// Names that stand for numbers, the first for `min`.
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &[
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const DAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FIELDS: [Field; 6] = [
    Field {
        name: "second",
        min: 0,
        max: 59,
        names: &[],
    },
    Field {
        name: "minute",
        min: 0,
        max: 59,
        names: &[],
    },
    Field {
        name: "hour",
        min: 0,
        max: 23,
        names: &[],
    },
    Field {
        name: "day of month",
        min: 1,
        max: 31,
        names: &[],
    },
    Field {
        name: "month",
        min: 1,
        max: 12,
        names: MONTHS,
    },
    // Sunday is 0 and 7.
    Field {
        name: "day of week",
        min: 0,
        max: 7,
        names: DAYS,
    },
];

const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The longest month of each, February in a leap year.
const DAYS_IN_MONTH: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// Hour, minute and second.
pub type TimeOfDay = (u8, u8, u8);

/// A schedule that was read: at which times of which days it fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronSchedule {
    /// Sets of bits, as the following ones.
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// Sunday is 0.
    weekdays: u64,
    /// Whether the day of the month is `*`: then the day of the week decides alone.
    is_any_day: bool,
    /// The same the other way round.
    is_any_weekday: bool,
}

impl CronSchedule {
    pub fn parse(schedule: &str) -> Result<Self, CronProblem> {
        let words = fields_of(schedule)?;
        let mut sets = [0u64; FIELDS.len()];
        for ((word, field), set) in words.iter().zip(&FIELDS).zip(&mut sets) {
            *set = read_list(word, field)?;
        }
        let [seconds, minutes, hours, days, months, weekdays] = sets;
        let read = Self {
            seconds,
            minutes,
            hours,
            days,
            months,
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            is_any_day: words[3] == "*",
            is_any_weekday: words[5] == "*",
        };
        if read.is_any_weekday && !ever_comes(days, months) {
            return Err(problem(
                format!("{} never comes: no such month has that day", quoted(schedule)),
                "change the day of month or the month".into(),
            ));
        }
        Ok(read)
    }

    /// Whether it fires on a day of a month, both from 1, which is that day of the week, Sunday being 0. Where days of both
    /// kinds are given, either of them fires, as in every cron.
    pub fn is_on(&self, month: u8, day: u8, weekday: u8) -> bool {
        let (is_day, is_weekday) = (has(self.days, day), has(self.weekdays, weekday));
        let is_on = match (self.is_any_day, self.is_any_weekday) {
            (true, _) => is_weekday,
            (false, true) => is_day,
            (false, false) => is_day || is_weekday,
        };
        is_on && has(self.months, month)
    }

    /// The first hour, minute and second of a day, not before these.
    pub fn first_time(&self, (hour, minute, second): TimeOfDay) -> Option<TimeOfDay> {
        let seconds = first_from(self.seconds, 0)?;
        if has(self.hours, hour) {
            let in_minute = first_from(self.seconds, second).filter(|_| has(self.minutes, minute));
            if let Some(second) = in_minute {
                return Some((hour, minute, second));
            }
            if let Some(minute) = first_from(self.minutes, minute.saturating_add(1)) {
                return Some((hour, minute, seconds));
            }
        }
        let hour = first_from(self.hours, hour.saturating_add(1))?;
        Some((hour, first_from(self.minutes, 0)?, seconds))
    }

    /// The last hour, minute and second of a day, not after these.
    pub fn last_time(&self, (hour, minute, second): TimeOfDay) -> Option<TimeOfDay> {
        let seconds = last_until(self.seconds, 59)?;
        if has(self.hours, hour) {
            let in_minute = last_until(self.seconds, second).filter(|_| has(self.minutes, minute));
            if let Some(second) = in_minute {
                return Some((hour, minute, second));
            }
            let before = minute.checked_sub(1);
            if let Some(minute) = before.and_then(|minute| last_until(self.minutes, minute)) {
                return Some((hour, minute, seconds));
            }
        }
        let hour = last_until(self.hours, hour.checked_sub(1)?)?;
        Some((hour, last_until(self.minutes, 59)?, seconds))
    }
}

fn has(set: u64, number: u8) -> bool {
    first_from(set, number) == Some(number)
}

/// The smallest number of a set that is not below this one.
fn first_from(set: u64, number: u8) -> Option<u8> {
    let rest = set & u64::MAX.checked_shl(u32::from(number)).unwrap_or(0);
    (rest != 0).then(|| rest.trailing_zeros() as u8)
}

/// The greatest number of a set that is not above this one.
fn last_until(set: u64, number: u8) -> Option<u8> {
    let above = u64::MAX
        .checked_shl(u32::from(number).saturating_add(1))
        .unwrap_or(0);
    let rest = set & !above;
    (rest != 0).then(|| 63 - rest.leading_zeros() as u8)
}

fn fields_of(schedule: &str) -> Result<Vec<&str>, CronProblem> {
    if let Some((_, fields)) = MACROS.iter().find(|(name, _)| *name == schedule.trim()) {
        return Err(problem(
            format!("{} is not one of the five fields of a schedule", quoted(schedule)),
            format!("write `\"{fields}\"`"),
        ));
    }
    let mut words: Vec<&str> = schedule.split_ascii_whitespace().collect();
    if words.len() + 1 == FIELDS.len() {
        words.insert(0, "0");
    }
    if words.len() != FIELDS.len() {
        let hint = match words.len() {
            7 => "years have no field: second, minute, hour, day of month, month, day of week",
            _ => "minute, hour, day of month, month, day of week, such as `\"*/15 8-18 * * MON-FRI\"`",
        };
        let found = match words.len() {
            0 => "the schedule is empty".to_owned(),
            1 => format!("a schedule has five fields, {} is one", quoted(schedule)),
            count => format!("a schedule has five fields, {} has {count}", quoted(schedule)),
        };
        return Err(problem(found, hint.into()));
    }
    Ok(words)
}

fn ever_comes(days: u64, months: u64) -> bool {
    (1u32..=12).any(|month| {
        let last = u32::from(DAYS_IN_MONTH[month as usize - 1]);
        months & (1 << month) != 0 && (1..=last).any(|day| days & (1 << day) != 0)
    })
}

fn problem(message: String, hint: String) -> CronProblem {
    CronProblem { message, hint }
}

/// `1,5-10,*/2` as a set of bits.
fn read_list(word: &str, field: &Field) -> Result<u64, CronProblem> {
    let mut set = 0;
    for item in word.split(',') {
        set |= read_item(item, field)?;
    }
    Ok(set)
}

fn read_item(item: &str, field: &Field) -> Result<u64, CronProblem> {
    let (range, step) = match item.split_once('/') {
        None => (item, None),
        Some((range, step)) => (range, Some(read_step(step, field)?)),
    };
    let (from, to) = match range.split_once('-') {
        _ if range == "*" => (field.min, field.max),
        Some((from, to)) => (read_number(from, field)?, read_number(to, field)?),
        // `5/15` means from 5 to the end in steps of 15.
        None => {
            let from = read_number(range, field)?;
            (from, if step.is_some() { field.max } else { from })
        }
    };
    if from > to {
        return Err(problem(
            format!("the range {} of the {} runs backwards", quoted(range), field.name),
            format!("write `{from}-{},{}-{to}`", field.max, field.min),
        ));
    }
    let steps = (from..=to).step_by(usize::from(step.unwrap_or(1)));
    Ok(steps.fold(0, |set, number| set | 1 << number))
}

fn read_step(step: &str, field: &Field) -> Result<u8, CronProblem> {
    let wrong = |hint: String| {
        problem(
            format!("{} is not a step of the {}", quoted(step), field.name),
            hint,
        )
    };
    match step.parse::<u8>() {
        Ok(step) if (1..=field.max).contains(&step) => Ok(step),
        Ok(_) | Err(_) => Err(wrong(format!("a step is 1 to {}, such as `*/5`", field.max))),
    }
}

fn read_number(text: &str, field: &Field) -> Result<u8, CronProblem> {
    let upper = text.to_ascii_uppercase();
    if let Some(position) = field.names.iter().position(|name| *name == upper) {
        return Ok(field.min + position as u8);
    }
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u8>() {
        Ok(number) if is_number && (field.min..=field.max).contains(&number) => return Ok(number),
        Ok(_) | Err(_) => {}
    }
    let allowed = match field.names {
        [] => format!("it is {} to {}", field.min, field.max),
        [first, .., last] | [first @ last] => {
            format!("it is {} to {} or {first} to {last}", field.min, field.max)
        }
    };
    let hint = match nearest(&upper, field.names.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if is_number => "`*` is every one, `,` joins, `-` is a range, `/` a step".into(),
        None => format!("{allowed}; `*` is every one, `,` joins, `-` is a range, `/` a step"),
    };
    let message = if text.is_empty() {
        format!("the {} has an empty part", field.name)
    } else if is_number {
        format!("{} is no {}: {allowed}", quoted(text), field.name)
    } else {
        format!("{} is no {}", quoted(text), field.name)
    };
    Err(problem(message, hint))
}

#[cfg(test)]
mod tests {
    use super::CronSchedule;

    #[test]
    fn schedules_that_are_fine() {
        for schedule in [
            "* * * * *",
            "*/15 8-18 * * MON-FRI",
            "0 0 1 1 *",
            "5,10-20/2 3 * feb-apr 7",
            "0 0 29 2 *",
            "  0  3 * * *  ",
            "0 0 31 2 MON",
            "0 0 30 2 */2",
            "3/5 * * * *",
            "0 0 * * sun",
            "*/10 * * * * *",
        ] {
            let read = CronSchedule::parse(schedule);
            assert!(read.is_ok(), "{schedule}: {read:?}");
        }
    }

    #[test]
    fn schedules_that_are_not() {
        for (schedule, message) in [
            ("", "the schedule is empty"),
            ("@daily", "`@daily` is not one of the five fields of a schedule"),
            ("* * * *", "a schedule has five fields, `* * * *` has 4"),
            (
                "0 * * * * * *",
                "a schedule has five fields, `0 * * * * * *` has 7",
            ),
            ("60 * * * * *", "`60` is no second: it is 0 to 59"),
            ("60 * * * *", "`60` is no minute: it is 0 to 59"),
            ("* 24 * * *", "`24` is no hour: it is 0 to 23"),
            ("* * 0 * *", "`0` is no day of month: it is 1 to 31"),
            ("* * * * 8", "`8` is no day of week: it is 0 to 7 or SUN to SAT"),
            ("* * * * MOO", "`MOO` is no day of week"),
            ("+5 * * * *", "`+5` is no minute"),
            ("1,,2 * * * *", "the minute has an empty part"),
            ("*/0 * * * *", "`0` is not a step of the minute"),
            ("*/x * * * *", "`x` is not a step of the minute"),
            ("* 22-2 * * *", "the range `22-2` of the hour runs backwards"),
            (
                "0 0 30 2 *",
                "`0 0 30 2 *` never comes: no such month has that day",
            ),
            ("0 0 L * *", "`L` is no day of month"),
            (
                "999999999999 * * * *",
                "`999999999999` is no minute: it is 0 to 59",
            ),
        ] {
            assert_eq!(CronSchedule::parse(schedule).unwrap_err().message, message);
        }
    }
    #[test]
    fn times_of_a_day_are_found_from_both_sides() {
        let read = |schedule| CronSchedule::parse(schedule).unwrap();
        let office = read("*/20 8-18 * * *");
        assert_eq!(office.first_time((0, 0, 0)), Some((8, 0, 0)));
        assert_eq!(office.first_time((8, 40, 1)), Some((9, 0, 0)));
        assert_eq!(office.first_time((18, 40, 0)), Some((18, 40, 0)));
        assert_eq!(office.first_time((18, 40, 1)), None);
        assert_eq!(office.last_time((23, 59, 59)), Some((18, 40, 0)));
        assert_eq!(office.last_time((9, 19, 59)), Some((9, 0, 0)));
        assert_eq!(office.last_time((7, 59, 59)), None);
        assert_eq!(office.last_time((0, 0, 0)), None);
        let every = read("* * * * *");
        assert_eq!(every.first_time((23, 59, 0)), Some((23, 59, 0)));
        assert_eq!(every.first_time((23, 58, 1)), Some((23, 59, 0)));
        assert_eq!(every.last_time((0, 0, 0)), Some((0, 0, 0)));
        let often = read("*/20 5 * * * *");
        assert_eq!(often.first_time((7, 5, 21)), Some((7, 5, 40)));
        assert_eq!(often.first_time((7, 5, 41)), Some((8, 5, 0)));
        assert_eq!(often.last_time((7, 5, 39)), Some((7, 5, 20)));
        assert_eq!(often.last_time((7, 4, 59)), Some((6, 5, 40)));
    }

    #[test]
    fn either_kind_of_day_fires_where_both_are_given() {
        let is_on = |schedule, month, day, weekday| {
            let read = CronSchedule::parse(schedule).unwrap();
            read.is_on(month, day, weekday)
        };
        assert!(is_on("0 0 * * 7", 3, 4, 0), "Sunday is 7 too");
        assert!(!is_on("0 0 * * 7", 3, 4, 1));
        assert!(is_on("0 0 13 * FRI", 3, 13, 2));
        assert!(is_on("0 0 13 * FRI", 3, 12, 5));
        assert!(!is_on("0 0 13 * FRI", 3, 12, 4));
        assert!(!is_on("0 0 13 4 FRI", 3, 13, 5), "another month");
        assert!(!is_on("0 0 13 * *", 3, 12, 5));
    }
}
