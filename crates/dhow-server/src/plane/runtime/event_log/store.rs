//! Events on disk: appended, made durable before a snapshot lets the log of commands forget what they came from,
//! and deleted file by file from the oldest on. Blocks; used by the event log writer alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{EventFile, list};
use super::reader::EventReader;
use crate::plane::runtime::event::{EventId, EventRecord};
use crate::plane::runtime::limits::{EVENT_FILE_BYTES, EVENT_FILES_MAX};

/// The files of the event log, open for appending. The event log writer alone has one. Its methods block.
#[derive(Debug)]
pub struct EventStore {
    dir: PathBuf,
    file: Option<Open>,
    next_number: u64,
    last: EventId,
    file_max_bytes: u64,
}

#[derive(Debug)]
struct Open {
    file: File,
    path: PathBuf,
    /// How much of the file is whole lines. What lies beyond is from a write that failed.
    size_bytes: u64,
    is_torn: bool,
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
    #[error("an event cannot be written as JSON")]
    Form(#[source] serde_json::Error),
    #[error("the event log's store is gone; events are shown and not kept until the daemon starts again")]
    Gone,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EventStoreError {
    let path = path.to_owned();
    move |cause| EventStoreError::Io { action, path, cause }
}

impl EventStore {
    /// Opens the event log in a directory of its own, or makes one. A last line that was cut off is removed.
    pub fn open(dir: &Path) -> Result<Self, EventStoreError> {
        Self::open_sized(dir, EVENT_FILE_BYTES)
    }

    pub(super) fn open_sized(dir: &Path, file_max_bytes: u64) -> Result<Self, EventStoreError> {
        std::fs::create_dir_all(dir).map_err(failed("create", dir))?;
        let files = list(dir).map_err(failed("list", dir))?;
        let mut store = Self {
            dir: dir.to_owned(),
            file: None,
            next_number: files.last().map_or(1, |file| file.number + 1),
            last: EventId::default(),
            file_max_bytes,
        };
        for file in files.iter().rev() {
            let (open, last) = reopen(&file.path)?;
            if store.file.is_none() {
                store.file = Some(open);
            }
            if let Some(last) = last {
                store.last = last;
                break;
            }
        }
        Ok(store)
    }

    /// The last event that is kept; zero where there is none.
    pub fn last_id(&self) -> EventId {
        self.last
    }

    /// A reader of the same directory, which may be used beside the writer.
    pub fn reader(&self) -> EventReader {
        EventReader::new(self.dir.clone())
    }

    /// Appends events, which must come after the last one.
    pub fn append(&mut self, records: &[Arc<EventRecord>]) -> Result<(), EventStoreError> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Ok(());
        };
        let mut lines = Vec::new();
        for record in records {
            serde_json::to_writer(&mut lines, record.as_ref()).map_err(EventStoreError::Form)?;
            lines.push(b'\n');
        }
        if self
            .file
            .as_ref()
            .is_none_or(|open| open.size_bytes >= self.file_max_bytes)
        {
            self.rotate(first.id())?;
        }
        if let Some(open) = &mut self.file {
            open.append(&lines)?;
        }
        self.last = last.id();
        Ok(())
    }

    /// Makes everything durable.
    pub fn sync(&mut self) -> Result<(), EventStoreError> {
        match &self.file {
            Some(open) => open.file.sync_data().map_err(failed("sync", &open.path)),
            None => Ok(()),
        }
    }

    fn rotate(&mut self, first: EventId) -> Result<(), EventStoreError> {
        self.sync()?;
        let file = EventFile::new(&self.dir, self.next_number, first);
        let made = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&file.path)
            .map_err(failed("create", &file.path))?;
        self.next_number += 1;
        self.file = Some(Open {
            file: made,
            path: file.path,
            size_bytes: 0,
            is_torn: false,
        });
        let files = list(&self.dir).map_err(failed("list", &self.dir))?;
        for old in &files[..files.len().saturating_sub(EVENT_FILES_MAX)] {
            std::fs::remove_file(&old.path).map_err(failed("delete", &old.path))?;
        }
        File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .map_err(failed("sync", &self.dir))
    }
}

impl Open {
    fn append(&mut self, lines: &[u8]) -> Result<(), EventStoreError> {
        if self.is_torn {
            self.file
                .set_len(self.size_bytes)
                .map_err(failed("mend", &self.path))?;
            self.is_torn = false;
        }
        if let Err(cause) = self.file.write_all(lines) {
            self.is_torn = true;
            return Err(failed("write", &self.path)(cause));
        }
        self.size_bytes += lines.len() as u64;
        Ok(())
    }
}

/// Opens a file to go on with it: what follows its last whole line goes. Answers the last event in it.
fn reopen(path: &Path) -> Result<(Open, Option<EventId>), EventStoreError> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .open(path)
        .map_err(failed("open", path))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed("read", path))?;
    let whole = text
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    if whole < text.len() {
        file.set_len(whole as u64).map_err(failed("mend", path))?;
    }
    let last = text[..whole]
        .split(|byte| *byte == b'\n')
        .rev()
        .find_map(|line| serde_json::from_slice::<EventRecord>(line).ok())
        .map(|record| record.id());
    let open = Open {
        file,
        path: path.to_owned(),
        size_bytes: whole as u64,
        is_torn: false,
    };
    Ok((open, last))
}
