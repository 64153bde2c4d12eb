//! Events on disk, made durable before a snapshot lets the log of commands forget what they came from. What somebody asked
//! for is kept a second time in files of its own: a worker that reports without end, or a large rollout, pushes everything
//! out of the others within minutes, and must not take with it who did what. Blocks; used by the event log writer alone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reader::{EventReader, ReadEventsError};
use super::series::{Kept, Series, failed};
use crate::plane::runtime::event::{EventId, EventRecord};
use crate::plane::runtime::limits::{AUDIT_FILES_MAX, EVENT_FILE_BYTES, EVENT_FILES_MAX};

/// Below the directory of the events.
const AUDIT_DIR: &str = "audit";

/// The files of the event log, open for appending. The event log writer alone has one. Its methods block.
#[derive(Debug)]
pub struct EventStore {
    dir: PathBuf,
    all: Series,
    /// Those with an author.
    audit: Series,
}

/// Why an event could not be written, or the event log not opened.
#[derive(Debug, thiserror::Error)]
pub enum EventStoreError {
    #[error("cannot {action} the event log at {path}", path = path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("what somebody asked for cannot be gathered from the event log")]
    Read(#[source] ReadEventsError),
    #[error("an event cannot be written as JSON")]
    Form(#[source] serde_json::Error),
    #[error("the event log's store is gone; events are shown and not kept until the daemon starts again")]
    Gone,
}

impl EventStore {
    /// Opens the event log in a directory of its own, or makes one.
    pub fn open(dir: &Path) -> Result<Self, EventStoreError> {
        Self::open_sized(dir, EVENT_FILE_BYTES)
    }

    pub(super) fn open_sized(dir: &Path, file_max_bytes: u64) -> Result<Self, EventStoreError> {
        let kept = |files_max| Kept {
            file_max_bytes,
            files_max,
        };
        std::fs::create_dir_all(dir).map_err(failed("create", dir))?;
        let mut store = Self {
            dir: dir.to_owned(),
            all: Series::open(dir, kept(EVENT_FILES_MAX))?,
            audit: Series::open(&dir.join(AUDIT_DIR), kept(AUDIT_FILES_MAX))?,
        };
        if let Err(error) = store.catch_up() {
            // A full disk is no reason not to start.
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "who did what is not complete in the files that are kept for long"
            );
        }
        Ok(store)
    }

    /// Brings what somebody asked for to where all events are: versions before this one had only the one kind, and a
    /// power cut may have cost one kind of files more than the other.
    fn catch_up(&mut self) -> Result<(), EventStoreError> {
        let found = match self.audit.is_new() {
            true => self.reader().since(EventId::default(), usize::MAX),
            false => self.reader().of_newest_file(),
        };
        let last = self.audit.last_id();
        let found = found.map_err(EventStoreError::Read)?.into_iter();
        let missing: Vec<_> = found.filter(|record| record.id() > last).map(Arc::new).collect();
        self.append_audit(&missing)
    }

    /// The last event that is kept; zero where there is none.
    pub fn last_id(&self) -> EventId {
        self.all.last_id()
    }

    /// A reader of all events, which may be used beside the writer.
    pub fn reader(&self) -> EventReader {
        EventReader::new(self.dir.clone())
    }

    /// The same for what somebody asked for, which is kept for longer.
    pub fn audit_reader(&self) -> EventReader {
        EventReader::new(self.dir.join(AUDIT_DIR))
    }

    /// Appends events, which must come after the last one.
    pub fn append(&mut self, records: &[Arc<EventRecord>]) -> Result<(), EventStoreError> {
        // First, so that what is told as missing is never missing here alone.
        self.append_audit(records)?;
        self.all.append(records)
    }

    fn append_audit(&mut self, records: &[Arc<EventRecord>]) -> Result<(), EventStoreError> {
        let authored = records.iter().filter(|record| record.event.author.is_some());
        let mut authored: Vec<_> = authored.cloned().collect();
        if authored
            .first()
            .is_some_and(|first| first.id() <= self.audit.last_id())
        {
            // Told again after a power cut that cost the other files more.
            let kept = self.audit_reader().of_newest_file();
            let kept = kept.map_err(EventStoreError::Read)?;
            authored.retain(|told| !kept.iter().any(|record| *record == **told));
        }
        if self.audit.is_new() && !authored.is_empty() {
            // Not before, so that a full disk is no reason not to start.
            match std::fs::create_dir(self.dir.join(AUDIT_DIR)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed("create", &self.dir)(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        self.audit.append(&authored)
    }

    /// Makes everything durable.
    pub fn sync(&mut self) -> Result<(), EventStoreError> {
        self.audit.sync()?;
        self.all.sync()
    }
}
