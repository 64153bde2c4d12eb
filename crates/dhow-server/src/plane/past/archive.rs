//! The directory of chapters: what is written next, when a new chapter begins, and what is forgotten. Blocks.

use std::path::{Path, PathBuf};

use dhow_core::state::State;
use dhow_wire::log_form::decode_snapshot;
use nix::sys::statvfs::statvfs;

use super::PastOptions;
use super::chapter::{self, Chapter, ENDING, Reached};
use super::error::{PastError, failed};
use super::index::{ChapterInfo, PastIndex};
use super::redact;
use crate::plane::log::Log;
use crate::plane::log::store::{LogPosition, StoreError};

/// Bytes of the log that are read at a time.
const READ_BYTES: usize = 4 * 1024 * 1024;

/// The past leaves so much of a disk to the log of commands, to images and to what replicas write.
const FREE_BYTES_MIN: u64 = 256 * 1024 * 1024;

/// The chapters of a directory, open for appending.
#[derive(Debug)]
pub struct Archive {
    options: PastOptions,
    /// Those that are complete, the oldest first.
    closed: Vec<ChapterInfo>,
    current: Option<Chapter>,
}

impl Archive {
    pub fn open(options: &PastOptions) -> Result<Self, PastError> {
        let dir = &options.dir;
        std::fs::create_dir_all(dir).map_err(failed("make", dir))?;
        let mut archive = Self {
            options: options.clone(),
            closed: Vec::new(),
            current: None,
        };
        let mut is_next = true;
        for path in chapters(dir)? {
            match info(&path) {
                Ok(info) => {
                    if let (Some(before), Some(follows)) = (archive.closed.last_mut(), info.follows) {
                        before.last = match is_next {
                            true => follows,
                            false => Chapter::reopen(&before.path)?.reached.revision,
                        };
                    }
                    archive.closed.push(info);
                    is_next = true;
                }
                Err(error) => {
                    put_aside(&path, &error);
                    is_next = false;
                }
            }
        }
        // Where the newest cannot be gone on with, the one before it can: the log has what followed, or there is a gap.
        while let Some(newest) = archive.closed.pop() {
            match Chapter::reopen(&newest.path) {
                Ok(chapter) => {
                    archive.current = Some(chapter);
                    break;
                }
                Err(error) => put_aside(&newest.path, &error),
            }
        }
        Ok(archive)
    }

    pub fn index(&self) -> PastIndex {
        let current = self.current.as_ref().map(|chapter| ChapterInfo {
            path: chapter.path.clone(),
            first: chapter.head.revision,
            first_unix_ms: chapter.head.unix_ms,
            follows: chapter.head.follows,
            last: chapter.reached.revision,
            bytes: chapter.bytes,
        });
        PastIndex {
            chapters: self.closed.iter().cloned().chain(current).collect(),
            problem: None,
        }
    }

    /// Writes what the log has up to this state, and begins the next chapter with it where that is due.
    pub fn catch_up(&mut self, log: &dyn Log, state: &State) -> Result<(), PastError> {
        check_room(&self.options.dir)?;
        let mut has_begun = self.current.is_none() && self.begin(log, state)?;
        while let Some(reached) = self.reached().filter(|at| at.revision < state.revision) {
            match self.read_on(log, state, reached) {
                Ok(true) => continue,
                // The log has less than this chapter: it is another log.
                Ok(false) if log.status().committed_index < reached.at.index && !has_begun => {}
                Ok(false) => return Ok(()),
                Err(PastError::Log(StoreError::Compacted { .. })) if !has_begun => {}
                Err(error) => return Err(error),
            }
            has_begun = true;
            if !self.begin(log, state)? {
                return Ok(());
            }
        }
        let due = self
            .current
            .as_ref()
            .filter(|chapter| self.is_due(chapter, state));
        if let Some(at) = due.map(|chapter| chapter.reached.at) {
            self.begin_with(state, at)?;
        }
        Ok(())
    }

    /// How far it has come, once it has begun.
    fn reached(&self) -> Option<Reached> {
        self.current.as_ref().map(|chapter| chapter.reached)
    }

    /// Appends the next entries of the log. False where it has none.
    fn read_on(&mut self, log: &dyn Log, state: &State, from: Reached) -> Result<bool, PastError> {
        let found = log.read(from.at.index.saturating_add(1), READ_BYTES)?;
        let mut reached = from;
        let mut entries = Vec::with_capacity(found.len());
        for entry in &found {
            // What came after the state is for the next time. An entry of the log is in the state as a whole.
            if reached.revision >= state.revision {
                break;
            }
            entries.push(redact::entry(&entry.payload)?);
            reached = Reached {
                revision: reached.revision.next(),
                at: entry.position(),
            };
        }
        if entries.is_empty() {
            return Ok(false);
        }
        let Some(current) = &mut self.current else {
            return Ok(false);
        };
        current.append(&entries, reached)?;
        Ok(true)
    }

    /// Begins where the log begins: with its newest snapshot, or with nothing. False where that is still to come.
    fn begin(&mut self, log: &dyn Log, state: &State) -> Result<bool, PastError> {
        let Some(snapshot) = log.newest_snapshot()? else {
            self.begin_with(&State::default(), LogPosition::default())?;
            return Ok(true);
        };
        let at = snapshot.position();
        let begun = decode_snapshot(snapshot)?;
        // One that is being taken over is in the next state.
        let is_applied = begun.revision <= state.revision;
        if is_applied {
            self.begin_with(&begun, at)?;
        }
        Ok(is_applied)
    }

    fn begin_with(&mut self, state: &State, at: LogPosition) -> Result<(), PastError> {
        let follows = self.current.as_ref().map(|chapter| chapter.reached.revision);
        let follows = follows.or(self.closed.last().map(|chapter| chapter.last));
        if let Some(current) = &mut self.current {
            current.sync()?;
        }
        let next = Chapter::begin(&self.options.dir, state, at, follows)?;
        if let Some(done) = self.index().chapters.pop().filter(|_| self.current.is_some()) {
            self.closed.push(done);
        }
        // Of another history, where the same revisions meant something else.
        self.closed.retain(|chapter| {
            let is_earlier = chapter.first < next.head.revision;
            if !is_earlier && chapter.path != next.path {
                remove(&chapter.path);
            }
            is_earlier
        });
        self.current = Some(next);
        Ok(())
    }

    fn is_due(&self, chapter: &Chapter, state: &State) -> bool {
        if chapter.reached.revision != state.revision || chapter.entries() == 0 {
            return false;
        }
        let size = &self.options.chapter;
        let now = state.clock_marks.wall_unix_ms(state.time);
        let is_old = now
            .zip(chapter.head.unix_ms)
            .is_some_and(|(now, begun)| now.saturating_sub(begun) >= size.span_ms);
        let outgrows = chapter.entry_bytes >= chapter.bytes / 2;
        let entries = chapter.entries();
        is_old || entries >= size.entries_max || (entries >= size.entries_min && outgrows)
    }

    /// Forgets what is too old and what is too much, chapter by chapter; the last one stays.
    pub fn forget(&mut self, now_unix_ms: i64) -> Result<(), PastError> {
        let oldest_unix_ms = now_unix_ms.saturating_sub(self.options.window_ms);
        loop {
            let index = self.index();
            let [oldest, next, ..] = index.chapters.as_slice() else {
                return Ok(());
            };
            // Until the next one begins, it is what was.
            let is_old = next.first_unix_ms.is_some_and(|begun| begun <= oldest_unix_ms);
            if !is_old && index.bytes() <= self.options.bytes_max {
                return Ok(());
            }
            std::fs::remove_file(&oldest.path).map_err(failed("delete", &oldest.path))?;
            self.closed.remove(0);
        }
    }

    pub fn sync(&mut self) {
        if let Some(Err(error)) = self.current.as_mut().map(Chapter::sync) {
            tracing::debug!(error = error.told(), "the past is not made durable for now");
        }
    }
}

/// The files of a directory, the oldest first. What was not finished goes.
pub fn chapters(dir: &Path) -> Result<Vec<PathBuf>, PastError> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(dir).map_err(failed("list", dir))? {
        let path = file.map_err(failed("list", dir))?.path();
        match path.extension().and_then(|ending| ending.to_str()) {
            Some(ENDING) => found.push(path),
            Some("new") => remove(&path),
            Some(_) | None => {}
        }
    }
    found.sort();
    Ok(found)
}

/// What the first bytes of a chapter say; where it ends, the next one says.
pub fn info(path: &Path) -> Result<ChapterInfo, PastError> {
    let (head, _) = chapter::open(path)?;
    let size = path.metadata().map_err(failed("look at", path))?;
    Ok(ChapterInfo {
        path: path.to_owned(),
        first: head.revision,
        first_unix_ms: head.unix_ms,
        follows: head.follows,
        last: head.revision,
        bytes: size.len(),
    })
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(file = %path.display(), %error, "a file of the past stays");
    }
}

/// A chapter that cannot be read is no chapter; what it had is a gap.
fn put_aside(path: &Path, error: &PastError) {
    let aside = path.with_extension("unreadable");
    tracing::warn!(
        error = error.told(),
        aside = %aside.display(),
        "a chapter of the past cannot be read and is put aside"
    );
    if let Err(error) = std::fs::rename(path, &aside) {
        tracing::warn!(file = %path.display(), %error, "it cannot be put aside");
    }
}

fn check_room(dir: &Path) -> Result<(), PastError> {
    let Ok(found) = statvfs(dir) else {
        return Ok(());
    };
    let free_bytes = found.blocks_available().saturating_mul(found.fragment_size());
    let all_bytes = found.blocks().saturating_mul(found.fragment_size());
    // Of a small disk an eighth.
    let needed_bytes = FREE_BYTES_MIN.min(all_bytes / 8);
    match free_bytes < needed_bytes {
        true => Err(PastError::DiskFull {
            free_bytes,
            needed_bytes,
        }),
        false => Ok(()),
    }
}
