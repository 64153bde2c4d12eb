//! What entries and snapshots have in common when they are read: the number of the form, the value, and no rest.

use dhow_core::stored::Form;
use serde::de::DeserializeOwned;

use super::error::LogFormError;

/// The value behind the bytes, of whatever form they have.
pub(super) fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, LogFormError> {
    let (number, body) = bytes.split_first().ok_or(LogFormError::Empty { what })?;
    let form = Form::of_number(*number).ok_or(LogFormError::UnknownVersion {
        what,
        found: *number,
        known: Form::NEWEST.number(),
    })?;
    let mut from = postcard::Deserializer::from_bytes(body);
    let read = form.read(&mut from);
    let value = read.map_err(|cause| LogFormError::Malformed { what, cause })?;
    let rest = from
        .finalize()
        .map_err(|cause| LogFormError::Malformed { what, cause })?;
    if !rest.is_empty() {
        return Err(LogFormError::Trailing {
            what,
            rest_bytes: rest.len(),
        });
    }
    Ok(value)
}
