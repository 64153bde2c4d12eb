//! One chapter: a file with a state and the entries after it. It comes into being whole, under another name first, and is
//! then only appended to; what a crash leaves of its last frame is cut off.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use dhow_core::ids::Revision;
use dhow_core::state::State;
use dhow_wire::log_form::encode_snapshot;
use serde::{Deserialize, Serialize};

use super::error::{PastError, damaged, failed};
use super::frame::{FrameError, Frames, Kind, MAGIC, frame};
use super::redact;
use crate::plane::log::store::LogPosition;

/// What the compression is asked for: its usual level.
const LEVEL: i32 = 3;

/// Ends the name of a chapter's file.
pub const ENDING: &str = "past";

/// Where a chapter begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The last entry of the log that is in its state.
    pub index: u64,
    pub term: u64,
    pub revision: Revision,
    /// What the wall clock said then, as far as the log knows.
    pub unix_ms: Option<i64>,
    /// The last revision of the chapter before it, where there was one. Another one than its own means a gap.
    pub follows: Option<Revision>,
}

/// What stands before packed entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntriesHead {
    pub first: Revision,
    pub last: Revision,
    /// The place of the last one in the log.
    pub index: u64,
    pub term: u64,
}

/// How far something has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    pub revision: Revision,
    pub at: LogPosition,
}

/// The chapter that is being written.
#[derive(Debug)]
pub struct Chapter {
    pub path: PathBuf,
    pub head: Head,
    pub reached: Reached,
    file: File,
    /// How much of the file is whole frames.
    pub bytes: u64,
    /// Of these the entries after the state.
    pub entry_bytes: u64,
    is_torn: bool,
    is_synced: bool,
}

pub fn file_name(revision: Revision) -> String {
    format!("{:020}.{ENDING}", revision.0)
}

/// Reads where a chapter begins, and goes on behind that.
pub fn open(path: &Path) -> Result<(Head, Frames<BufReader<File>>), PastError> {
    let file = File::open(path).map_err(failed("open", path))?;
    let mut frames = Frames::open(BufReader::new(file)).map_err(|error| torn(path, 0, error))?;
    let at = frames.at;
    match frames.next().map_err(|error| torn(path, at, error))? {
        Some((Kind::Head, body)) => {
            let head = postcard::from_bytes(&body);
            let head = head.map_err(|_| damaged(path, at, "where it begins cannot be read"))?;
            Ok((head, frames))
        }
        Some((Kind::State | Kind::Entries, _)) | None => {
            Err(damaged(path, at, "it does not say where it begins"))
        }
    }
}

pub fn torn(path: &Path, at: u64, error: FrameError) -> PastError {
    match error {
        FrameError::Torn(what) => damaged(path, at, what),
        FrameError::Io(cause) => failed("read", path)(cause),
    }
}

impl Chapter {
    /// Begins a chapter with a state.
    pub fn begin(
        dir: &Path,
        state: &State,
        at: LogPosition,
        follows: Option<Revision>,
    ) -> Result<Self, PastError> {
        let head = Head {
            index: at.index,
            term: at.term,
            revision: state.revision,
            unix_ms: state.clock_marks.wall_unix_ms(state.time),
            follows,
        };
        let path = dir.join(file_name(head.revision));
        let unfinished = path.with_extension("new");
        let bytes = first_bytes(&path, &head, state)?;
        let write = || {
            let mut file = File::create(&unfinished)?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            std::fs::rename(&unfinished, &path)?;
            File::open(dir)?.sync_all()?;
            OpenOptions::new().append(true).open(&path)
        };
        let file = write().map_err(|cause| {
            // A full disk must not be filled by what was not finished.
            let _ = std::fs::remove_file(&unfinished);
            failed("write", &path)(cause)
        })?;
        Ok(Self {
            reached: Reached {
                revision: head.revision,
                at,
            },
            path,
            head,
            file,
            bytes: bytes.len() as u64,
            entry_bytes: 0,
            is_torn: false,
            is_synced: true,
        })
    }

    /// Opens a chapter to go on with it: what follows its last whole frame goes.
    pub fn reopen(path: &Path) -> Result<Self, PastError> {
        let (head, mut frames) = open(path)?;
        let mut reached = Reached {
            revision: head.revision,
            at: LogPosition {
                index: head.index,
                term: head.term,
            },
        };
        let mut state_end = None;
        let mut whole = frames.at;
        loop {
            match frames.next() {
                Ok(None) => break,
                Ok(Some((Kind::State, _))) => state_end = Some(frames.at),
                Ok(Some((Kind::Entries, body))) => {
                    let read = postcard::take_from_bytes::<EntriesHead>(&body);
                    let (of, _) = read.map_err(|_| damaged(path, whole, "entries without a beginning"))?;
                    reached = Reached {
                        revision: of.last,
                        at: LogPosition {
                            index: of.index,
                            term: of.term,
                        },
                    };
                }
                Ok(Some((Kind::Head, _))) => return Err(damaged(path, whole, "it begins twice")),
                Err(FrameError::Torn(what)) => {
                    tracing::info!(file = %path.display(), at = whole, what, "the end of a chapter of the past is cut off");
                    break;
                }
                Err(FrameError::Io(cause)) => return Err(failed("read", path)(cause)),
            }
            whole = frames.at;
        }
        let state_end = state_end.ok_or_else(|| damaged(path, whole, "it has no state"))?;
        let file = OpenOptions::new().append(true).open(path);
        let file = file.map_err(failed("open", path))?;
        file.set_len(whole).map_err(failed("mend", path))?;
        Ok(Self {
            path: path.to_owned(),
            head,
            reached,
            file,
            bytes: whole,
            entry_bytes: whole - state_end,
            is_torn: false,
            is_synced: false,
        })
    }

    pub fn entries(&self) -> u64 {
        self.reached.revision.0.saturating_sub(self.head.revision.0)
    }

    /// Appends entries that follow what is there.
    pub fn append(&mut self, entries: &[Bytes], reached: Reached) -> Result<(), PastError> {
        let path = self.path.clone();
        let mut packed = Vec::new();
        for entry in entries {
            let length = u32::try_from(entry.len()).unwrap_or(u32::MAX);
            packed.extend_from_slice(&length.to_le_bytes());
            packed.extend_from_slice(entry);
        }
        let of = EntriesHead {
            first: self.reached.revision.next(),
            last: reached.revision,
            index: reached.at.index,
            term: reached.at.term,
        };
        let head = postcard::to_allocvec(&of).map_err(|error| damaged(&path, self.bytes, error))?;
        let write = || {
            let packed = zstd::encode_all(packed.as_slice(), LEVEL)?;
            frame(Kind::Entries, &[head, packed].concat())
        };
        let bytes = write().map_err(failed("pack entries for", &path))?;
        self.write(&bytes)?;
        self.reached = reached;
        self.bytes += bytes.len() as u64;
        self.entry_bytes += bytes.len() as u64;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), PastError> {
        if self.is_torn {
            self.file
                .set_len(self.bytes)
                .map_err(failed("mend", &self.path))?;
            self.is_torn = false;
        }
        self.is_synced = false;
        let Err(cause) = self.file.write_all(bytes) else {
            return Ok(());
        };
        // Readers are told the whole frames alone; what was begun gives its room back.
        self.is_torn = self.file.set_len(self.bytes).is_err();
        Err(failed("write", &self.path)(cause))
    }

    /// Makes durable what was written.
    pub fn sync(&mut self) -> Result<(), PastError> {
        if !self.is_synced {
            self.file.sync_data().map_err(failed("sync", &self.path))?;
            self.is_synced = true;
        }
        Ok(())
    }
}

fn first_bytes(path: &Path, head: &Head, state: &State) -> Result<Vec<u8>, PastError> {
    let mut bytes = MAGIC.to_vec();
    let body = postcard::to_allocvec(head).map_err(|error| damaged(path, 0, error))?;
    bytes.extend(frame(Kind::Head, &body).map_err(failed("write", path))?);
    let begun = zstd::Encoder::new(Vec::new(), LEVEL);
    let mut packed = begun.map_err(failed("pack a state for", path))?;
    encode_snapshot(&redact::state(state), &mut packed)?;
    let packed = packed.finish().map_err(failed("pack a state for", path))?;
    bytes.extend(frame(Kind::State, &packed).map_err(failed("write", path))?);
    Ok(bytes)
}
