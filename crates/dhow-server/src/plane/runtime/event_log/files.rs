//! The files of the event log: JSON lines, one file after another. A name holds the file's number and the place of
//! its first event, so that a reader finds where to begin without opening any.

use std::io;
use std::path::{Path, PathBuf};

use dhow_core::ids::Revision;

use crate::plane::runtime::event::EventId;

/// One file of the event log, as its name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventFile {
    /// Counts from 1; above 1 for the oldest means that older ones were deleted.
    pub number: u64,
    pub first: EventId,
    pub path: PathBuf,
}

impl EventFile {
    pub fn new(dir: &Path, number: u64, first: EventId) -> Self {
        let name = format!(
            "events-{number:010}-{:020}-{:010}.jsonl",
            first.revision.0, first.part
        );
        Self {
            number,
            first,
            path: dir.join(name),
        }
    }

    fn parse(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let middle = name.strip_prefix("events-")?.strip_suffix(".jsonl")?;
        let mut parts = middle.split('-').map(str::parse::<u64>);
        let (number, revision, part) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
        if parts.next().is_some() {
            return None;
        }
        let first = EventId {
            revision: Revision(revision),
            part: u32::try_from(part).ok()?,
        };
        Some(Self { number, first, path })
    }
}

/// The files in a directory, oldest first; none where nothing was written yet, which is when the directory is made.
pub(super) fn list(dir: &Path) -> io::Result<Vec<EventFile>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        files.extend(EventFile::parse(entry?.path()));
    }
    files.sort_by_key(|file| file.number);
    Ok(files)
}
