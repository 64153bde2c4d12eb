//! One look at a directory on this server's disk. Blocks.

use std::path::Path;

use dhow_wire::manifest::Verdict;

use super::dir::{read_index, read_set, stamp};
use super::judge::{Judge, SourceError};

/// The index in force, and the stamp of the files when they were last proved to be those that it names.
type Sound = Option<([u8; 32], u64)>;

/// A set whose index is the one in force is not read any further, but for whether its files are still the same.
pub(super) fn look_at_dir(judge: &Judge, sound: Sound) -> Result<(Verdict, Sound), SourceError> {
    let dir = Path::new(judge.source.settings.dir.as_ref());
    let mut set = read_index(dir).map_err(|cause| judge.unreadable(cause))?;
    if judge.is_wanted_again || !judge.is_in_force(&set.index) {
        set = read_set(dir, set).map_err(|cause| judge.unreadable(cause))?;
    }
    match judge.verdict(&set, None, None)? {
        Verdict::Newer(set) => Ok((Verdict::Newer(set), None)),
        Verdict::Unchanged => Ok((Verdict::Unchanged, look_at_files(judge, dir, sound)?)),
    }
}

/// Whether the files beside the index in force are still those that it names. They are read where anything was changed
/// since they were last proved; what was taken stays in force whatever is found.
fn look_at_files(judge: &Judge, dir: &Path, sound: Sound) -> Result<Sound, SourceError> {
    let Some(in_force) = judge.taken else {
        return Ok(None);
    };
    // Taken before they are read: what is changed in between is read again at the next look.
    let now = (
        in_force.index_hash,
        stamp(dir).map_err(|cause| judge.unreadable(cause))?,
    );
    if sound == Some(now) {
        return Ok(sound);
    }
    let set = read_index(dir).map_err(|cause| judge.unreadable(cause))?;
    if !judge.is_in_force(&set.index) {
        // Replaced in between: the next look is at the new one.
        return Ok(None);
    }
    let set = read_set(dir, set).map_err(|cause| judge.unreadable(cause))?;
    set.check_unchanged().map_err(|cause| judge.refused(cause))?;
    Ok(Some(now))
}
