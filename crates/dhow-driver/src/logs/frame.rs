//! One stored line: header, text, newline. The header of `logs` describes the form.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longer lines are stored in pieces. Four pages: a shim holds at most one such piece per stream.
pub const LINE_MAX_BYTES: usize = 16 * 1024;

/// 16 digits, a space, stream and flag, a space. Sixteen digits of microseconds last until the year 2286.
pub(super) const HEADER_BYTES: usize = 20;

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
    /// Said by the supervisor itself, such as a count of lines that a full disk cost.
    Notice,
}

impl Stream {
    fn tag(self) -> u8 {
        match self {
            Self::Stdout => b'o',
            Self::Stderr => b'e',
            Self::Notice => b'!',
        }
    }

    fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            b'o' => Some(Self::Stdout),
            b'e' => Some(Self::Stderr),
            b'!' => Some(Self::Notice),
            _ => None,
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Notice => "notice",
        })
    }
}

/// A line, or a piece of one, as it is read back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Wall clock of the host when the line was complete, in microseconds since 1970.
    pub at_us: u64,
    pub stream: Stream,
    /// Without the newline. Bytes that are no UTF-8 are shown as replacement characters.
    pub text: String,
    /// The line goes on in this stream's next record.
    pub partial: bool,
}

/// Appends one record to `to`.
pub(super) fn encode(to: &mut Vec<u8>, at_us: u64, stream: Stream, partial: bool, text: &[u8]) {
    to.extend_from_slice(format!("{at_us:016}").as_bytes());
    to.push(b' ');
    to.push(stream.tag());
    to.push(if partial { b'+' } else { b'.' });
    to.push(b' ');
    to.extend_from_slice(text);
    to.push(b'\n');
}

/// Reads one record without its newline; `None` for anything that is not one.
pub(super) fn decode(record: &[u8]) -> Option<LogLine> {
    let (header, text) = record.split_at_checked(HEADER_BYTES)?;
    let digits = header.get(..16)?;
    if !digits.iter().all(u8::is_ascii_digit)
        || header.get(16) != Some(&b' ')
        || header.get(19) != Some(&b' ')
    {
        return None;
    }
    let at_us = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let stream = Stream::from_tag(*header.get(17)?)?;
    let partial = match header.get(18)? {
        b'+' => true,
        b'.' => false,
        _ => return None,
    };
    Some(LogLine {
        at_us,
        stream,
        text: String::from_utf8_lossy(text).into_owned(),
        partial,
    })
}
