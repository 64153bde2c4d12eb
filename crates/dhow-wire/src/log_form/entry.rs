//! One entry of the log.

use dhow_core::command::{ClusterCommand, Command, Entry};
use dhow_core::stored::{Form, Writing};

use super::error::LogFormError;
use super::parse;

/// The largest entry: the store's largest record, which leaves room for one deployment file with large
/// environment values.
pub const ENTRY_MAX_BYTES: usize = 8 * 1024 * 1024;

const WHAT: &str = "log entry";

/// The bytes of an entry, in the form that all servers read of a cluster at this feature level.
pub fn encode_entry(entry: &Entry, feature_level: u32) -> Result<Vec<u8>, LogFormError> {
    let form = match &entry.command {
        // Every server knows the new level, or nobody would propose it.
        Command::Cluster(ClusterCommand::RaiseFeatureLevel { .. }) => Form::NEWEST,
        // What the cluster begins with all its servers read.
        Command::Cluster(ClusterCommand::Bootstrap {
            feature_level: begun, ..
        }) => Form::of_level(feature_level.max(*begun)),
        Command::Cluster(_)
        | Command::Node(_)
        | Command::Deployment(_)
        | Command::Plan(_)
        | Command::Agent(_) => Form::of_level(feature_level),
    };
    let bytes = postcard::to_extend(&Writing::new(form, entry), vec![form.number()])
        .map_err(|cause| LogFormError::unwritable(WHAT, form, cause))?;
    check_size(bytes.len())?;
    Ok(bytes)
}

/// The entry behind the bytes.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, LogFormError> {
    check_size(bytes.len())?;
    parse::decode(WHAT, bytes)
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
