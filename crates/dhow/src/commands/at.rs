//! `--at REVISION|TIME`: a moment of the past, as verbs take it. The server says which revision it is.

use dhow_core::spec::TimeSpan;
use dhow_wire::api::PastMoment;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned, civil};

use crate::client::{Client, ClientError, Request};
use crate::output;

/// A moment that somebody named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Revision(u64),
    UnixMs(i64),
}

impl At {
    /// The newest moment that there is.
    pub const NOW: Self = Self::UnixMs(i64::MAX);
}

/// A revision, a time, or how long ago it is.
pub fn at(text: &str) -> Result<At, String> {
    at_from(text, &Zoned::now())
}

fn at_from(text: &str, now: &Zoned) -> Result<At, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let revision = text.parse().map_err(|_| format!("`{text}` is no revision"))?;
        return Ok(At::Revision(revision));
    }
    let unknown = || {
        format!(
            "`{text}` is neither a revision nor a time: write `1204`, `2026-11-19T14:03`, `14:03`, or how long ago it is, \
             such as `2h`"
        )
    };
    let ago = text.strip_suffix(" ago").unwrap_or(text);
    let found = match ago.parse::<TimeSpan>() {
        Ok(span) => now.timestamp().checked_sub(span.to_std()).ok(),
        Err(_) => time(text, now),
    };
    found
        .map(|found| At::UnixMs(found.as_millisecond()))
        .ok_or_else(unknown)
}

/// A time with its zone, or one by the clock on the wall here: of a day, or of the last day that had it.
fn time(text: &str, now: &Zoned) -> Option<Timestamp> {
    if let Ok(exact) = text.parse::<Timestamp>() {
        return Some(exact);
    }
    let here = |moment: civil::DateTime| moment.to_zoned(now.time_zone().clone()).ok();
    // A time alone is read out of a date with a time as well.
    if let Ok(moment) = text.parse::<civil::DateTime>() {
        return here(moment).map(|zoned| zoned.timestamp());
    }
    let time = text.parse::<civil::Time>().ok()?;
    let today = here(now.date().to_datetime(time))?;
    let last = match today.timestamp() <= now.timestamp() {
        true => today,
        false => here(now.date().yesterday().ok()?.to_datetime(time))?,
    };
    Some(last.timestamp())
}

/// Which revision it is.
pub async fn resolve(client: &Client, at: At) -> Result<PastMoment, ClientError> {
    let request = Request::get(&["past", "at"]);
    let request = match at {
        At::Revision(revision) => request.query("revision", revision),
        At::UnixMs(unix_ms) => request.query("unix_ms", unix_ms),
    };
    client.fetch_as(request).await
}

/// The same, and says it beside the answer.
pub async fn announced(client: &Client, at: Option<At>) -> Result<Option<PastMoment>, ClientError> {
    let Some(at) = at else {
        return Ok(None);
    };
    let moment = resolve(client, at).await?;
    output::note(&format!("as of {}", told(&moment)));
    Ok(Some(moment))
}

/// `revision 1204, 2026-11-19 14:03:12.000`
pub fn told(moment: &PastMoment) -> String {
    let time = moment.unix_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    match time {
        Some(time) => {
            let zoned = time.to_zoned(TimeZone::system());
            format!(
                "revision {}, {}",
                moment.revision,
                zoned.strftime("%Y-%m-%d %H:%M:%S%.3f")
            )
        }
        None => format!("revision {}, at a time that was not noted", moment.revision),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_people_write_them() {
        let now: Zoned = "2026-11-19T16:00:00+02:00[+02:00]".parse().unwrap();
        let read = |text| at_from(text, &now);
        let ms = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
        assert_eq!(read("1204"), Ok(At::Revision(1204)));
        for (text, expected) in [
            ("2026-11-19T14:03:00Z", "2026-11-19T14:03:00Z"),
            ("2026-11-19T14:03", "2026-11-19T12:03:00Z"),
            ("2026-11-18 14:03:10", "2026-11-18T12:03:10Z"),
            ("14:03", "2026-11-19T12:03:00Z"),
            ("16:30", "2026-11-18T14:30:00Z"),
            ("2h", "2026-11-19T12:00:00Z"),
            ("90m ago", "2026-11-19T12:30:00Z"),
        ] {
            assert_eq!(read(text), Ok(At::UnixMs(ms(expected))), "{text}");
        }
        for text in ["", "yesterday", "25:00", "-5", "99999999999999999999"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
