//! A whole state, streamed: a cluster of a million replicas has some hundred megabytes of it.

use std::io::{Read, Write};

use dhow_core::state::State;
use dhow_core::stored::{Form, Writing};
use serde::Deserialize;

use super::error::LogFormError;
use super::parse;

/// The largest snapshot that is read into memory. A replica takes about 100 bytes and a node about 1 KiB, so that
/// a million replicas on 40,000 nodes stay below a tenth of this.
pub const SNAPSHOT_MAX_BYTES: u64 = 2 * 1024 * 1024 * 1024;

const WHAT: &str = "snapshot";

/// Writes the state, in the form that all servers read of a cluster at its feature level.
pub fn encode_snapshot(state: &State, mut to: impl Write) -> Result<(), LogFormError> {
    let form = state.form();
    to.write_all(&[form.number()])
        .map_err(|cause| LogFormError::Io { what: WHAT, cause })?;
    let mut kept = KeptError { to, error: None };
    match postcard::to_io(&Writing::new(form, state), &mut kept) {
        Ok(_) => Ok(()),
        Err(cause) => Err(match kept.error {
            Some(cause) => LogFormError::Io { what: WHAT, cause },
            None => LogFormError::unwritable(WHAT, form, cause),
        }),
    }
}

/// Reads a state to the end of the input.
pub fn decode_snapshot(from: impl Read) -> Result<State, LogFormError> {
    decode_limited(from, SNAPSHOT_MAX_BYTES)
}

pub(super) fn decode_limited(from: impl Read, limit_bytes: u64) -> Result<State, LogFormError> {
    let mut bytes = Vec::new();
    let size_bytes = from
        .take(limit_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|cause| LogFormError::Io { what: WHAT, cause })? as u64;
    if size_bytes > limit_bytes {
        return Err(LogFormError::TooLarge {
            what: WHAT,
            size_bytes,
            limit_bytes,
        });
    }
    parse::decode(WHAT, &bytes)
}

/// What stands first in a state, in every form.
#[derive(Deserialize)]
struct Beginning {
    _feature_level: u32,
    _cluster_id: Option<String>,
    _revision: u64,
    _time: u64,
    term: u64,
}

/// The most of a state that its beginning takes: a name of a cluster and some numbers.
const BEGINNING_MAX_BYTES: u64 = 64 * 1024;

/// The term that a state has reached, from its first bytes: the rest is not read.
pub fn snapshot_term(from: impl Read) -> Result<u64, LogFormError> {
    let mut bytes = Vec::new();
    from.take(BEGINNING_MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|cause| LogFormError::Io { what: WHAT, cause })?;
    let (number, body) = bytes.split_first().ok_or(LogFormError::Empty { what: WHAT })?;
    if Form::of_number(*number).is_none() {
        return Err(LogFormError::UnknownVersion {
            what: WHAT,
            found: *number,
            known: Form::NEWEST.number(),
        });
    }
    let read = postcard::take_from_bytes::<Beginning>(body);
    let (beginning, _) = read.map_err(|cause| LogFormError::Malformed { what: WHAT, cause })?;
    Ok(beginning.term)
}

/// Postcard turns every failure of the writer into "buffer full"; this keeps the real one.
struct KeptError<W> {
    to: W,
    error: Option<std::io::Error>,
}

impl<W: Write> Write for KeptError<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.to.write(bytes).map_err(|error| {
            let told = std::io::Error::from(error.kind());
            self.error = Some(error);
            told
        })
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}
