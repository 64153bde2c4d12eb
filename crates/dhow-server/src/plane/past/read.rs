//! Makes a state of the past again: the state of its chapter, and the entries after it. Blocks.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use dhow_core::command::{ClusterCommand, Command, Entry};
use dhow_core::ids::Revision;
use dhow_core::state::State;
use dhow_core::step::step;
use dhow_wire::log_form::{decode_entry, decode_snapshot};

use super::chapter::{self, EntriesHead, torn};
use super::error::{PastError, damaged};
use super::frame::{Frames, Kind};
use super::index::PastIndex;
use super::moment::When;

/// The most that a frame of entries unpacks to: what was read of the log at a time, with one entry of the largest size.
const ENTRIES_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// A chapter that is read from its beginning.
pub struct Reader<'a> {
    path: &'a Path,
    frames: Frames<BufReader<File>>,
}

impl<'a> Reader<'a> {
    pub fn open(path: &'a Path) -> Result<(Self, State), PastError> {
        let (head, mut frames) = chapter::open(path)?;
        let at = frames.at;
        let packed = match frames.next().map_err(|error| torn(path, at, error))? {
            Some((Kind::State, packed)) => packed,
            Some((Kind::Head | Kind::Entries, _)) | None => {
                return Err(damaged(path, at, "the state is not there"));
            }
        };
        let unpacked = zstd::Decoder::new(packed.as_slice());
        let unpacked = unpacked.map_err(|error| damaged(path, at, error))?;
        let state = decode_snapshot(unpacked).map_err(|error| damaged(path, at, error))?;
        if state.revision != head.revision {
            return Err(damaged(path, at, "the state is of another revision"));
        }
        Ok((Self { path, frames }, state))
    }

    /// The next entries; none at the end of the chapter, and at what is being written at this moment.
    pub fn next(&mut self, until: Revision) -> Result<Option<(EntriesHead, Vec<Entry>)>, PastError> {
        let at = self.frames.at;
        let body = match self.frames.next() {
            Ok(Some((Kind::Entries, body))) => body,
            Ok(Some((Kind::Head | Kind::State, _))) => return Err(damaged(self.path, at, "it begins twice")),
            Ok(None) => return Ok(None),
            Err(error) => return Err(torn(self.path, at, error)),
        };
        let wrong = |what: &dyn ToString| damaged(self.path, at, what.to_string());
        let (of, packed) = postcard::take_from_bytes::<EntriesHead>(&body)
            .map_err(|_| wrong(&"entries without a beginning"))?;
        if of.first > until {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let unpacked = zstd::Decoder::new(packed).map_err(|error| wrong(&error))?;
        unpacked
            .take(ENTRIES_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| wrong(&error))?;
        let mut entries = Vec::new();
        let mut rest = bytes.as_slice();
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let entry = behind
                .get(..length)
                .ok_or_else(|| wrong(&"an entry is cut off"))?;
            entries.push(decode_entry(entry).map_err(|error| wrong(&error))?);
            rest = &behind[length..];
        }
        let counted = of.last.0.checked_sub(of.first.0).map(|more| more + 1);
        match counted == Some(entries.len() as u64) && rest.is_empty() {
            true => Ok(Some((of, entries))),
            false => Err(wrong(&"it does not have the entries that it says")),
        }
    }
}

/// The state at a moment.
pub fn state_at(index: &PastIndex, when: When) -> Result<State, PastError> {
    let chapter = match when {
        When::Revision(revision) => index.chapter_of(revision)?,
        When::UnixMs(unix_ms) => index.chapter_at(unix_ms)?,
    };
    // What is appended meanwhile is not looked at.
    let until = match when {
        When::Revision(revision) => revision,
        When::UnixMs(_) => chapter.last,
    };
    let (mut reader, mut state) = Reader::open(&chapter.path)?;
    while state.revision < until {
        let Some((_, entries)) = reader.next(until)? else {
            break;
        };
        for entry in &entries {
            if state.revision >= until {
                break;
            }
            if let When::UnixMs(unix_ms) = when
                && comes_at(&state, entry).is_some_and(|at| at > unix_ms)
            {
                return Ok(state);
            }
            // A refusal is part of the history: it moved the revision and the time.
            let _ = step(&mut state, entry, &mut ());
        }
    }
    if state.revision != until {
        let what = format!("revision {until} was to follow {}", state.revision);
        return Err(damaged(&chapter.path, 0, what));
    }
    // The moment lies behind the last one of its chapter: what came next is not there to say whether it had come.
    let gap = index.gaps().find(|(from, _)| *from == chapter.last.next());
    match (when, gap) {
        (When::UnixMs(_), Some((from, to))) => Err(PastError::Gap { from, to }),
        (When::UnixMs(_) | When::Revision(_), _) => Ok(state),
    }
}

/// What the wall clock said when this entry was applied to this state, as far as the log knows.
fn comes_at(state: &State, entry: &Entry) -> Option<i64> {
    match &entry.command {
        Command::Cluster(ClusterCommand::TermBegan {
            wall_unix_ms: Some(wall_unix_ms),
            ..
        }) => Some(*wall_unix_ms),
        Command::Cluster(_)
        | Command::Node(_)
        | Command::Deployment(_)
        | Command::Plan(_)
        | Command::Agent(_) => state.clock_marks.wall_unix_ms(state.time.max(entry.time)),
    }
}
