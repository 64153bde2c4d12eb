//! Batches that this node has handed to the log and whose outcome is not known yet.
//!
//! What became of a batch is read off the log itself, not off the answer of the consensus library: a leader that
//! loses its place does not know what becomes of its last entries, but whoever applies the log does. A batch that
//! stands in it is committed. A batch whose term is over, when an entry of a later term is applied and the batch did
//! not come before it, can never be committed any more.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::types::BatchTag;
use crate::plane::log::ProposalId;
use crate::plane::log::store::LogPosition;

/// One proposal of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub proposal: ProposalId,
    /// How many of the batch's commands are its own.
    pub commands: usize,
}

#[derive(Debug)]
struct Handed {
    parts: Vec<Part>,
    /// Where it stands in this node's log, once it does.
    appended: Option<LogPosition>,
}

/// The batches of this server's proposals whose outcome is open. The proposer adds them, and the state machine takes
/// them out as the log shows what became of them.
#[derive(Debug)]
pub struct Pending {
    node: u64,
    life: u64,
    batches: Mutex<Batches>,
}

#[derive(Debug, Default)]
struct Batches {
    handed: BTreeMap<u64, Handed>,
    last_number: u64,
}

impl Pending {
    pub fn new(node: u64, life: u64) -> Self {
        Self {
            node,
            life,
            batches: Mutex::default(),
        }
    }

    /// Notes a batch before it is handed on.
    pub fn add(&self, parts: Vec<Part>) -> BatchTag {
        let mut batches = self.lock();
        batches.last_number += 1;
        let number = batches.last_number;
        let appended = None;
        batches.handed.insert(number, Handed { parts, appended });
        BatchTag {
            node: self.node,
            life: self.life,
            number,
        }
    }

    /// Notes where a batch stands, before it is written there.
    pub fn appended(&self, tag: BatchTag, at: LogPosition) {
        if self.is_own(tag)
            && let Some(handed) = self.lock().handed.get_mut(&tag.number)
        {
            handed.appended = Some(at);
        }
    }

    /// Takes out a batch that is committed; none where it is not this node's, or nobody waits any more.
    pub fn committed(&self, tag: BatchTag) -> Option<Vec<Part>> {
        if !self.is_own(tag) {
            return None;
        }
        Some(self.lock().handed.remove(&tag.number)?.parts)
    }

    /// Takes out the batches that can never be committed now that this entry is applied.
    pub fn outrun(&self, applied: LogPosition) -> Vec<Part> {
        let is_outrun = |handed: &Handed| {
            handed
                .appended
                .is_some_and(|at| at.term < applied.term || at.index <= applied.index)
        };
        self.take(is_outrun)
    }

    /// Takes out a batch that was never written here, so that nobody else can have it; none where it was.
    pub fn never_written(&self, tag: BatchTag) -> Option<Vec<Part>> {
        let mut batches = self.lock();
        match batches.handed.get(&tag.number) {
            Some(Handed { appended: None, .. }) => Some(batches.handed.remove(&tag.number)?.parts),
            Some(Handed {
                appended: Some(_), ..
            })
            | None => None,
        }
    }

    /// Takes out a batch, whatever became of it.
    pub fn give_up(&self, tag: BatchTag) -> Option<Vec<Part>> {
        Some(self.lock().handed.remove(&tag.number)?.parts)
    }

    /// Takes out the batches that a snapshot covers: it does not say whether they are in it.
    pub fn covered(&self, snapshot: LogPosition) -> Vec<Part> {
        self.take(|handed| handed.appended.is_some_and(|at| at.index <= snapshot.index))
    }

    /// Takes out everything.
    pub fn give_up_all(&self) -> Vec<Part> {
        self.take(|_| true)
    }

    pub fn is_empty(&self) -> bool {
        self.lock().handed.is_empty()
    }

    fn take(&self, goes: impl Fn(&Handed) -> bool) -> Vec<Part> {
        let mut batches = self.lock();
        let gone = batches.handed.extract_if(.., |_, handed| goes(handed));
        gone.flat_map(|(_, handed)| handed.parts).collect()
    }

    fn is_own(&self, tag: BatchTag) -> bool {
        tag.node == self.node && tag.life == self.life
    }

    fn lock(&self) -> MutexGuard<'_, Batches> {
        // Every change is one call on a map, so a holder that panicked left it whole.
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
