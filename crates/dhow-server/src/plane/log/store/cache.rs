//! The most recent entries, kept in memory up to a number of bytes.

use std::collections::VecDeque;

use super::limits::ENTRY_OVERHEAD_BYTES;
use super::record::Entry;

/// A contiguous run of entries that ends where the log ends.
#[derive(Debug)]
pub struct EntryCache {
    entries: VecDeque<Entry>,
    size_bytes: usize,
    limit_bytes: usize,
}

impl EntryCache {
    /// An empty cache of at most this size.
    pub fn new(limit_bytes: usize) -> Self {
        EntryCache {
            entries: VecDeque::new(),
            size_bytes: 0,
            limit_bytes,
        }
    }

    /// The entry with this index, if it is here.
    pub fn get(&self, index: u64) -> Option<&Entry> {
        let first = self.entries.front()?.index;
        self.entries.get(usize::try_from(index.checked_sub(first)?).ok()?)
    }

    /// Adds the entry that follows the last one; older ones make room for it.
    pub fn push(&mut self, entry: Entry) {
        if self
            .entries
            .back()
            .is_some_and(|last| last.index + 1 != entry.index)
        {
            self.entries.clear();
            self.size_bytes = 0;
        }
        self.size_bytes += cost(&entry);
        self.entries.push_back(entry);
        while self.size_bytes > self.limit_bytes {
            self.drop_front();
        }
    }

    /// Forgets the entries from this index on.
    pub fn truncate(&mut self, from: u64) {
        while self.entries.back().is_some_and(|last| last.index >= from) {
            if let Some(entry) = self.entries.pop_back() {
                self.size_bytes -= cost(&entry);
            }
        }
    }

    /// Forgets the entries up to this index.
    pub fn purge(&mut self, up_to: u64) {
        while self.entries.front().is_some_and(|first| first.index <= up_to) {
            self.drop_front();
        }
    }

    fn drop_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.size_bytes -= cost(&entry);
        }
    }
}

fn cost(entry: &Entry) -> usize {
    entry.payload.len() + ENTRY_OVERHEAD_BYTES
}
