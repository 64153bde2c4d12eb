//! What the log holds, in memory: its bounds, the values beside it and where each entry lies on disk.
//!
//! The same transitions serve the writer, which tries a request before it writes it, and recovery, which
//! repeats what was written. So what was accepted is what comes back.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::error::StoreError;
use super::record::{Checkpoint, Entry, LogPosition, MetaKey, Record};

/// The bounds of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Index of the next entry.
    pub next_index: u64,
    /// The last position that was purged.
    pub purged: Option<LogPosition>,
}

impl Bounds {
    /// First index that is not purged.
    pub fn first_index(&self) -> u64 {
        self.purged.map_or(0, |purged| purged.index + 1)
    }

    /// Moves the bounds by one record, or says why the record cannot stand here.
    pub fn apply(&mut self, record: &Record) -> Result<(), StoreError> {
        match record {
            Record::Append(entry) => {
                if entry.index != self.next_index {
                    return Err(StoreError::NotNext {
                        expected: self.next_index,
                        got: entry.index,
                    });
                }
                self.next_index = after(entry.index)?;
            }
            Record::Truncate { from } => {
                let first = self.first_index();
                if *from < first || *from > self.next_index {
                    return Err(StoreError::BadTruncate {
                        from: *from,
                        first,
                        next: self.next_index,
                    });
                }
                self.next_index = *from;
            }
            Record::Purge(up_to) => {
                let first = after(up_to.index)?;
                if self.purged.is_none_or(|purged| purged.index < up_to.index) {
                    self.purged = Some(*up_to);
                    self.next_index = self.next_index.max(first);
                }
            }
            Record::Meta { .. } | Record::Checkpoint(_) => {}
        }
        Ok(())
    }
}

fn after(index: u64) -> Result<u64, StoreError> {
    index.checked_add(1).ok_or(StoreError::IndexExhausted { index })
}

/// Where an entry lies, in 32 bytes: a million entries take 32 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// First frame of the segment, which is its name.
    pub segment: u64,
    /// Term of the entry.
    pub term: u64,
    /// Sector of the segment at which the entry's frame begins; segments have at most 65,535 of them.
    pub sector: u16,
    /// Number of the entry's frame, counted from the first of the segment.
    pub frame: u16,
    /// Offset of the entry's record in the records of its frame.
    pub offset: u32,
    /// Length of the entry's payload.
    pub payload_bytes: u32,
}

/// Where a record stands.
#[derive(Debug, Clone, Copy)]
pub struct RecordPlace {
    /// First frame of the segment.
    pub segment: u64,
    /// Sector of the segment at which the frame begins.
    pub sector: u16,
    /// Number of the frame, counted from the first of the segment.
    pub frame: u16,
    /// Offset of the record in the records of the frame.
    pub offset: u32,
}

impl RecordPlace {
    fn slot(self, entry: &Entry) -> Slot {
        Slot {
            segment: self.segment,
            term: entry.term,
            sector: self.sector,
            frame: self.frame,
            offset: self.offset,
            // Payloads are at most 8 MiB.
            payload_bytes: entry.payload.len() as u32,
        }
    }
}

/// The log in memory.
#[derive(Debug, Default)]
pub struct LogState {
    /// Its bounds.
    pub bounds: Bounds,
    /// The values beside the entries.
    pub metas: BTreeMap<MetaKey, Bytes>,
    /// Index of the first slot.
    first_slot: u64,
    slots: VecDeque<Slot>,
}

impl LogState {
    /// The log as a checkpoint describes it, without the entries that lie before it on disk.
    pub fn from_checkpoint(checkpoint: Checkpoint) -> Self {
        LogState {
            bounds: Bounds {
                next_index: checkpoint.next_index,
                purged: checkpoint.purged,
            },
            metas: checkpoint.metas,
            first_slot: checkpoint.next_index,
            slots: VecDeque::new(),
        }
    }

    /// What a segment that begins now must start with.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            next_index: self.bounds.next_index,
            purged: self.bounds.purged,
            metas: self.metas.clone(),
        }
    }

    /// Repeats a record. The place says where it stands; it counts for entries alone.
    pub fn apply(&mut self, record: Record, place: RecordPlace) -> Result<(), StoreError> {
        self.bounds.apply(&record)?;
        match record {
            Record::Append(entry) => self.slots.push_back(place.slot(&entry)),
            Record::Truncate { from } => {
                let keep = from.saturating_sub(self.first_slot);
                self.slots.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
                self.first_slot = self.first_slot.min(from);
            }
            Record::Purge(_) => {
                let first = self.bounds.first_index();
                while self.first_slot < first {
                    if self.slots.pop_front().is_none() {
                        self.first_slot = first;
                        break;
                    }
                    self.first_slot += 1;
                }
            }
            Record::Meta { key, value } => {
                self.metas.insert(key, value);
            }
            Record::Checkpoint(_) => {}
        }
        Ok(())
    }

    /// The entries that should be there but were in no segment, as first and last index.
    pub fn missing(&self) -> Option<(u64, u64)> {
        let first = self.bounds.first_index();
        (first < self.first_slot).then(|| (first, self.first_slot - 1))
    }

    /// Where the entry with this index lies.
    pub fn slot(&self, index: u64) -> Option<Slot> {
        self.slots
            .get(usize::try_from(index.checked_sub(self.first_slot)?).ok()?)
            .copied()
    }

    /// The oldest segment that still holds an entry of the log.
    pub fn oldest_segment(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.segment)
    }

    /// The last entry, or what was purged last where there is none.
    pub fn last(&self) -> Option<LogPosition> {
        match self.slots.back() {
            Some(slot) => Some(LogPosition {
                index: self.bounds.next_index - 1,
                term: slot.term,
            }),
            None => self.bounds.purged,
        }
    }
}
