//! Reads events back from any place on, beside the writer. Blocks.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use super::files::{EventFile, list};
use crate::plane::runtime::event::{EventId, EventRecord};

/// Reads the event log's files from any event on, beside the task that writes them. Its methods block.
#[derive(Clone, Debug)]
pub struct EventReader {
    dir: PathBuf,
}

/// Older events were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events before {oldest} are no longer kept; begin at 0 for all that is kept")]
pub struct EventsGone {
    pub oldest: EventId,
}

/// Why events could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadEventsError {
    #[error(transparent)]
    Gone(#[from] EventsGone),
    #[error("the event log in {dir} cannot be read", dir = dir.display())]
    Io {
        dir: PathBuf,
        #[source]
        cause: io::Error,
    },
}

impl EventReader {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The events after a place, at most `max` of them. From revision 0 on means all that is kept.
    pub fn since(&self, after: EventId, max: usize) -> Result<Vec<EventRecord>, ReadEventsError> {
        let cannot = |cause| ReadEventsError::Io {
            dir: self.dir.clone(),
            cause,
        };
        let files = list(&self.dir).map_err(cannot)?;
        if let Some(oldest) = files.first()
            && oldest.number > 1
            && after < oldest.first
            && after.revision.0 > 0
        {
            return Err(EventsGone { oldest: oldest.first }.into());
        }
        let begin = files
            .partition_point(|file| file.first <= after)
            .saturating_sub(1);
        let mut records = Vec::new();
        for file in &files[begin..] {
            if records.len() >= max {
                break;
            }
            read_file(file, after, max, &mut records).map_err(cannot)?;
        }
        Ok(records)
    }
}

impl EventReader {
    /// All events of the newest file: what is older was made durable when that one was begun.
    pub(super) fn of_newest_file(&self) -> Result<Vec<EventRecord>, ReadEventsError> {
        let cannot = |cause| ReadEventsError::Io {
            dir: self.dir.clone(),
            cause,
        };
        let files = list(&self.dir).map_err(cannot)?;
        let mut records = Vec::new();
        if let Some(newest) = files.last() {
            read_file(newest, EventId::default(), usize::MAX, &mut records).map_err(cannot)?;
        }
        Ok(records)
    }
}

fn read_file(file: &EventFile, after: EventId, max: usize, records: &mut Vec<EventRecord>) -> io::Result<()> {
    let opened = match File::open(&file.path) {
        // The writer deleted it after it was listed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut lines = BufReader::new(opened);
    let mut line = Vec::new();
    while records.len() < max {
        line.clear();
        lines.read_until(b'\n', &mut line)?;
        // The end, or a line that the writer is just about to finish.
        if line.pop() != Some(b'\n') {
            break;
        }
        match serde_json::from_slice::<EventRecord>(&line) {
            Ok(record) if record.id() > after => records.push(record),
            Ok(_) => {}
            // A newer version's event, or damage: the others are worth reading all the same.
            Err(error) => {
                tracing::warn!(path = %file.path.display(), %error, "a line of the event log cannot be read")
            }
        }
    }
    Ok(())
}
