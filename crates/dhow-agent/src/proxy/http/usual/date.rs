//! The date that answers carry, written once a second.

use std::cell::Cell;
use std::time::SystemTime;

/// As `Sun, 06 Nov 1994 08:49:37 GMT`.
type DateText = [u8; 29];

thread_local! {
    /// The second that was written last.
    static LAST: Cell<(u64, DateText)> = const { Cell::new((0, *b"Thu, 01 Jan 1970 00:00:00 GMT")) };
}

/// Now.
pub fn now() -> DateText {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_secs());
    LAST.with(|last| {
        if last.get().0 != now {
            last.set((now, text(now)));
        }
        last.get().1
    })
}

/// A second since 1970, in the years up to 9999.
fn text(second: u64) -> DateText {
    const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    const MONTHS: [&[u8; 3]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
    ];
    let (days, rest) = (second / 86_400, second % 86_400);
    let (year, month, day) = civil(days);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    put(&mut text, 0, DAYS[(days % 7) as usize]);
    put(&mut text, 5, &two(day));
    put(&mut text, 8, MONTHS[(month - 1) as usize % 12]);
    put(&mut text, 12, &two(year / 100));
    put(&mut text, 14, &two(year));
    put(&mut text, 17, &two(rest / 3_600));
    put(&mut text, 20, &two(rest / 60 % 60));
    put(&mut text, 23, &two(rest % 60));
    text
}

fn put(text: &mut DateText, at: usize, bytes: &[u8]) {
    for (place, byte) in text.iter_mut().skip(at).zip(bytes) {
        *place = *byte;
    }
}

/// The last two digits.
fn two(number: u64) -> [u8; 2] {
    let digit = |number: u64| b'0' + u8::try_from(number % 10).unwrap_or_default();
    [digit(number / 10), digit(number)]
}

/// Year, month and day of a day since 1970. Years begin in March here, so that leap days come last, and go round in 400.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + DAYS_TO_1970;
    let (round, day_of_round) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let leap = day_of_round / 1_460 - day_of_round / 36_524 + day_of_round / 146_096;
    let year_of_round = (day_of_round - leap.min(day_of_round)) / 365;
    let day_of_year = day_of_round - (365 * year_of_round + year_of_round / 4 - year_of_round / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = round * 400 + year_of_round + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (second, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (1_709_251_200, "Fri, 01 Mar 2024 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&text(second)).unwrap(), expected);
        }
    }
}
