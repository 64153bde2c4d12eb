//! What there is of the past, for whoever asks about it while it is written.

use std::path::PathBuf;

use dhow_core::ids::Revision;

use super::error::PastError;

/// One chapter that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChapterInfo {
    pub path: PathBuf,
    pub first: Revision,
    /// What the wall clock said at its first revision; none where nobody knows.
    pub first_unix_ms: Option<i64>,
    /// The last revision of the chapter before it, where there was one.
    pub follows: Option<Revision>,
    pub last: Revision,
    pub bytes: u64,
}

/// The chapters that are kept, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastIndex {
    pub chapters: Vec<ChapterInfo>,
    /// Why nothing is written at the moment.
    pub problem: Option<String>,
}

impl PastIndex {
    pub fn first(&self) -> Option<&ChapterInfo> {
        self.chapters.first()
    }

    /// The last revision that is in it.
    pub fn last(&self) -> Option<Revision> {
        self.chapters.last().map(|chapter| chapter.last)
    }

    pub fn bytes(&self) -> u64 {
        self.chapters.iter().map(|chapter| chapter.bytes).sum()
    }

    /// Revisions inside the window that this server does not have: from, to.
    pub fn gaps(&self) -> impl Iterator<Item = (Revision, Revision)> {
        let pairs = self.chapters.iter().zip(self.chapters.iter().skip(1));
        let apart = pairs.filter(|(before, after)| before.last.next() < after.first);
        apart.map(|(before, after)| (before.last.next(), Revision(after.first.0 - 1)))
    }

    /// The chapter in which a revision stands.
    pub fn chapter_of(&self, revision: Revision) -> Result<&ChapterInfo, PastError> {
        let first = self.first().ok_or(PastError::Nothing)?;
        let found = self
            .chapters
            .iter()
            .rev()
            .find(|chapter| chapter.first <= revision);
        let found = found.ok_or(PastError::Before { first: first.first })?;
        if revision <= found.last {
            return Ok(found);
        }
        let gap = self.gaps().find(|(from, to)| (*from..=*to).contains(&revision));
        Err(match gap {
            Some((from, to)) => PastError::Gap { from, to },
            None => PastError::Ahead {
                asked: revision,
                newest: found.last,
            },
        })
    }

    /// The chapter in which a moment stands, by the wall clock: the last one that had begun by then.
    pub fn chapter_at(&self, unix_ms: i64) -> Result<&ChapterInfo, PastError> {
        let first = self.first().ok_or(PastError::Nothing)?;
        let had_begun = |chapter: &&ChapterInfo| chapter.first_unix_ms.is_none_or(|begun| begun <= unix_ms);
        let found = self.chapters.iter().rev().find(had_begun);
        found.ok_or(PastError::Before { first: first.first })
    }
}
