//! A series of files of events: appended to, and deleted file by file from the oldest on. Blocks; the event store has
//! two of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{EventFile, list};
use super::store::EventStoreError;
use crate::plane::runtime::event::{EventId, EventRecord};

/// How much of a series is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub file_max_bytes: u64,
    pub files_max: usize,
}

/// Files of events in one directory, open for appending.
#[derive(Debug)]
pub(super) struct Series {
    dir: PathBuf,
    file: Option<Open>,
    next_number: u64,
    last: EventId,
    kept: Kept,
}

#[derive(Debug)]
struct Open {
    file: File,
    path: PathBuf,
    /// How much of the file is whole lines. What lies beyond is from a write that failed.
    size_bytes: u64,
    is_torn: bool,
}

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EventStoreError {
    let path = path.to_owned();
    move |cause| EventStoreError::Io { action, path, cause }
}

impl Series {
    /// Opens the series in a directory, which is there when something is appended. A last line that was cut off is
    /// removed.
    pub fn open(dir: &Path, kept: Kept) -> Result<Self, EventStoreError> {
        let files = list(dir).map_err(failed("list", dir))?;
        let mut store = Self {
            dir: dir.to_owned(),
            file: None,
            next_number: files.last().map_or(1, |file| file.number + 1),
            last: EventId::default(),
            kept,
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

    /// Whether nothing was ever written.
    pub fn is_new(&self) -> bool {
        self.file.is_none()
    }

    /// Appends events. Those who read from a place on find what comes after the last one.
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
            .is_none_or(|open| open.size_bytes >= self.kept.file_max_bytes)
        {
            self.rotate(first.id())?;
        }
        if let Some(open) = &mut self.file {
            open.append(&lines)?;
        }
        self.last = self.last.max(last.id());
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
        for old in &files[..files.len().saturating_sub(self.kept.files_max)] {
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
