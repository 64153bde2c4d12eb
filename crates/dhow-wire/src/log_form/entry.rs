//! One entry of the log.

use dhow_core::command::Entry;

use super::error::LogFormError;

/// The form that is written. A reader that knows a newer one reads the older ones too.
pub const ENTRY_FORM_VERSION: u8 = 1;

/// The largest entry: the store's largest record, which leaves room for one deployment file with large
/// environment values.
pub const ENTRY_MAX_BYTES: usize = 8 * 1024 * 1024;

const WHAT: &str = "log entry";

/// The bytes of an entry.
pub fn encode_entry(entry: &Entry) -> Result<Vec<u8>, LogFormError> {
    let bytes = postcard::to_extend(entry, vec![ENTRY_FORM_VERSION])
        .map_err(|cause| LogFormError::Unwritable { what: WHAT, cause })?;
    check_size(bytes.len())?;
    Ok(bytes)
}

/// The entry behind the bytes.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, LogFormError> {
    check_size(bytes.len())?;
    let (version, body) = bytes.split_first().ok_or(LogFormError::Empty { what: WHAT })?;
    match *version {
        ENTRY_FORM_VERSION => decode_v1(body),
        found => Err(LogFormError::UnknownVersion {
            what: WHAT,
            found,
            known: ENTRY_FORM_VERSION,
        }),
    }
}

fn decode_v1(body: &[u8]) -> Result<Entry, LogFormError> {
    let (entry, rest) =
        postcard::take_from_bytes(body).map_err(|cause| LogFormError::Malformed { what: WHAT, cause })?;
    if !rest.is_empty() {
        return Err(LogFormError::Trailing {
            what: WHAT,
            rest_bytes: rest.len(),
        });
    }
    Ok(entry)
}

fn check_size(size_bytes: usize) -> Result<(), LogFormError> {
    if size_bytes > ENTRY_MAX_BYTES {
        return Err(LogFormError::TooLarge {
            what: WHAT,
            size_bytes: size_bytes as u64,
            limit_bytes: ENTRY_MAX_BYTES as u64,
        });
    }
    Ok(())
}
