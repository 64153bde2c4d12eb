//! Replays a folder of the past from its first chapter on, offline: each entry is applied by the rules of this program, and
//! the state of each further chapter must be what came out. Blocks.

use std::path::{Path, PathBuf};

use dhow_core::command::{ClusterCommand, Command, Entry, Outcome, Refused};
use dhow_core::ids::Revision;
use dhow_core::state::{State, StateHash};
use dhow_core::step::step;

use super::archive::{chapters, info};
use super::error::PastError;
use super::index::{ChapterInfo, PastIndex};
use super::read::Reader;

/// What is replayed: the chapters of a folder, or one of them.
#[derive(Clone, Debug)]
pub struct Replay {
    pub path: PathBuf,
    /// The last revision; all that there is where none is named.
    pub until: Option<Revision>,
    /// Whether to go on where the feature level changes.
    pub across: bool,
}

/// Why it ended where it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayEnd {
    /// There is no more.
    All,
    /// The revision that was asked for.
    Until,
    /// The next entry raises the feature level: from there on other rules hold.
    FeatureLevel { from: u32, to: u32 },
    /// What comes next is not there.
    Gap { from: Revision, to: Revision },
}

/// What a replay came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    pub first: Revision,
    pub last: Revision,
    pub hash: StateHash,
    /// Chapters whose states were compared with what came out.
    pub compared: usize,
    pub end: ReplayEnd,
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Past(#[from] PastError),
    #[error("there is no chapter of the past in {0}")]
    Empty(PathBuf),
    #[error(
        "the entries lead to another state than the one that was kept at revision {at}: {replayed} and not {kept}; this \
         program applies them in another way than the one that ran, or a file was changed"
    )]
    Diverged {
        at: Revision,
        replayed: StateHash,
        kept: StateHash,
    },
}

/// Is told each entry that was applied once more: the state by then, and what `step` said.
type Teller<'a> = dyn FnMut(&State, &Entry, &Result<Outcome, Refused>) + 'a;

/// Replays, and tells each entry with what `step` said of it.
pub fn replay(asked: &Replay, tell: &mut Teller<'_>) -> Result<Replayed, ReplayError> {
    let known = known(&asked.path)?;
    let mut walk: Option<Walk> = None;
    for (number, chapter) in known.chapters.iter().enumerate() {
        let (mut reader, kept) = Reader::open(&chapter.path)?;
        let walked = match walk.as_mut() {
            None => walk.insert(Walk::new(kept, asked)),
            Some(walk) if kept.revision != walk.state.revision => {
                let (from, to) = (walk.state.revision.next(), kept.revision);
                return Ok(walk.ended(ReplayEnd::Gap { from, to }));
            }
            Some(walk) => {
                walk.compare(&kept)?;
                walk
            }
        };
        let is_last = number + 1 == known.chapters.len();
        if let Some(end) = walked.read(&mut reader, is_last, tell)? {
            return Ok(walked.ended(end));
        }
    }
    match walk {
        Some(walk) => Ok(walk.ended(ReplayEnd::All)),
        None => Err(ReplayError::Empty(asked.path.clone())),
    }
}

fn known(path: &Path) -> Result<PastIndex, PastError> {
    let files = match path.is_dir() {
        true => chapters(path)?,
        false => vec![path.to_owned()],
    };
    let chapters: Result<Vec<ChapterInfo>, PastError> = files.iter().map(|file| info(file)).collect();
    Ok(PastIndex {
        chapters: chapters?,
        problem: None,
    })
}

/// A state on its way through the chapters.
struct Walk {
    state: State,
    first: Revision,
    compared: usize,
    until: Option<Revision>,
    across: bool,
}

impl Walk {
    fn new(state: State, asked: &Replay) -> Self {
        Self {
            first: state.revision,
            state,
            compared: 0,
            until: asked.until,
            across: asked.across,
        }
    }

    fn compare(&mut self, kept: &State) -> Result<(), ReplayError> {
        let (replayed, expected) = (self.state.hash(), kept.hash());
        if replayed != expected {
            return Err(ReplayError::Diverged {
                at: kept.revision,
                replayed,
                kept: expected,
            });
        }
        self.compared += 1;
        Ok(())
    }

    fn read(
        &mut self,
        reader: &mut Reader<'_>,
        is_last: bool,
        tell: &mut Teller<'_>,
    ) -> Result<Option<ReplayEnd>, ReplayError> {
        loop {
            let entries = match reader.next(Revision(u64::MAX)) {
                Ok(Some((_, entries))) => entries,
                Ok(None) => return Ok(None),
                // The daemon may be writing it at this moment, or was killed while it did.
                Err(PastError::Damaged { .. }) if is_last => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            for entry in &entries {
                if self.until.is_some_and(|until| self.state.revision >= until) {
                    return Ok(Some(ReplayEnd::Until));
                }
                if let Command::Cluster(ClusterCommand::RaiseFeatureLevel { level, .. }) = &entry.command
                    && *level > self.state.feature_level
                    && !self.across
                {
                    let from = self.state.feature_level;
                    return Ok(Some(ReplayEnd::FeatureLevel { from, to: *level }));
                }
                let result = step(&mut self.state, entry, &mut ());
                tell(&self.state, entry, &result);
            }
        }
    }

    fn ended(&self, end: ReplayEnd) -> Replayed {
        let is_there = self.until == Some(self.state.revision);
        Replayed {
            first: self.first,
            last: self.state.revision,
            hash: self.state.hash(),
            compared: self.compared,
            end: match end {
                ReplayEnd::All if is_there => ReplayEnd::Until,
                end => end,
            },
        }
    }
}
