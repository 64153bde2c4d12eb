//! Numbers as people read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const MINUTE_SECS: i64 = 60;
const HOUR_SECS: i64 = 60 * MINUTE_SECS;
const DAY_SECS: i64 = 24 * HOUR_SECS;

/// How long ago: `12s`, `5m`, `3h`, `12d`. Two clocks that differ never show less than nothing.
pub fn age(since_unix_secs: i64, now_unix_secs: i64) -> String {
    let secs = now_unix_secs.saturating_sub(since_unix_secs).max(0);
    match secs {
        ..MINUTE_SECS => format!("{secs}s"),
        MINUTE_SECS..HOUR_SECS => format!("{}m", secs / MINUTE_SECS),
        HOUR_SECS..DAY_SECS => format!("{}h", secs / HOUR_SECS),
        DAY_SECS.. => format!("{}d", secs / DAY_SECS),
    }
}

/// A moment in the time zone of whoever looks, to the millisecond.
pub fn time(unix_us: i64) -> String {
    match Timestamp::from_microsecond(unix_us) {
        Ok(moment) => {
            let zoned = moment.to_zoned(TimeZone::system());
            zoned.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
        }
        // Outside of what a calendar holds.
        Err(_) => unix_us.to_string(),
    }
}

/// A moment of a schedule, which fires as a minute begins: `2026-11-17 02:00 UTC`.
pub fn minute_utc(unix_secs: i64) -> String {
    match Timestamp::from_second(unix_secs) {
        Ok(moment) => moment.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        // Outside of what a calendar holds.
        Err(_) => unix_secs.to_string(),
    }
}

/// A moment: `2026-11-17 02:00:07 UTC`.
pub fn second_utc(unix_secs: i64) -> String {
    match Timestamp::from_second(unix_secs) {
        Ok(moment) => moment.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        // Outside of what a calendar holds.
        Err(_) => unix_secs.to_string(),
    }
}

/// A size: `512 B`, `1.5 KiB`, `12 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value < 10.0 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// Thousandths of a core as cores: `0.25`, `1.5`, `12`.
pub fn cores(milli: u64) -> String {
    let text = format!("{:.2}", milli as f64 / 1_000.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// At most so many characters, with a mark where something is missing.
pub fn cut(text: &str, chars_max: usize) -> String {
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(chars_max).collect();
    if chars.next().is_some() {
        short.pop();
        short.push('…');
    }
    short
}

/// On one line, without what would move a terminal's cursor.
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> = text
        .split(char::is_control)
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let cases = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3_599, "59m"),
            (3_600, "1h"),
            (86_399, "23h"),
            (86_400, "1d"),
            (-5, "0s"),
        ];
        for (secs, text) in cases {
            assert_eq!(age(1_000, 1_000 + secs), text);
        }
        assert_eq!(age(i64::MIN, i64::MAX), format!("{}d", i64::MAX / DAY_SECS));
    }

    #[test]
    fn sizes_have_few_digits() {
        let cases = [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (10 << 20, "10 MiB"),
            (u64::MAX, "16384 PiB"),
        ];
        for (count, text) in cases {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn cores_have_few_digits() {
        for (milli, text) in [(0, "0"), (4, "0"), (250, "0.25"), (1_500, "1.5"), (12_000, "12")] {
            assert_eq!(cores(milli), text);
        }
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(one_line("a\nb\u{1b}[31mc\r\n"), "a b [31mc");
        assert_eq!(cut("häuser", 6), "häuser");
        assert_eq!(cut("häuser", 4), "häu…");
    }

    #[test]
    fn moments_outside_of_the_calendar_are_numbers() {
        assert_eq!(time(i64::MAX), i64::MAX.to_string());
        assert_eq!(time(0).len(), "1970-01-01 00:00:00.000".len());
    }
}
