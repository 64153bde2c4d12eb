//! What a caller asks of the store: records that become durable together or not at all.

use bytes::Bytes;

use super::error::{StoreError, TooLarge};
use super::limits::MAX_META_BYTES;
use super::options::StoreOptions;
use super::record::{Entry, LogPosition, MetaKey, Record};

/// One step of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Append this entry; its index must be the next one.
    Append(Entry),
    /// Append at the next index, whatever it is by then.
    AppendNext {
        /// Term of the leader that writes it.
        term: u64,
        /// The entry's bytes.
        payload: Bytes,
    },
    /// Drop the entries from this index on.
    Truncate {
        /// First index that goes.
        from: u64,
    },
    /// Give up the entries up to this position. It may lie beyond the end: then the log goes on after it.
    Purge(LogPosition),
    /// Set a value beside the entries.
    Meta {
        /// Which one.
        key: MetaKey,
        /// Its bytes.
        value: Bytes,
    },
}

impl Op {
    /// The record to write when the next index is this one.
    pub(super) fn into_record(self, next_index: u64) -> Record {
        match self {
            Op::Append(entry) => Record::Append(entry),
            Op::AppendNext { term, payload } => Record::Append(Entry {
                index: next_index,
                term,
                payload,
            }),
            Op::Truncate { from } => Record::Truncate { from },
            Op::Purge(up_to) => Record::Purge(up_to),
            Op::Meta { key, value } => Record::Meta { key, value },
        }
    }
}

/// Steps that are written in one frame: after a crash all of them are there or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    ops: Vec<Op>,
}

impl Batch {
    /// A batch of these steps, carried out in this order.
    pub fn new(ops: Vec<Op>) -> Self {
        Batch { ops }
    }

    /// A batch of one step.
    pub fn of(op: Op) -> Self {
        Batch { ops: vec![op] }
    }

    pub(super) fn into_ops(self) -> Vec<Op> {
        self.ops
    }

    /// Checks every limit and returns the bytes that the batch takes in a frame.
    pub(super) fn checked_bytes(&self, options: &StoreOptions) -> Result<usize, StoreError> {
        let mut total: usize = 0;
        for op in &self.ops {
            let (what, size_bytes, limit_bytes) = match op {
                Op::Append(entry) => (TooLarge::Entry, entry.payload.len(), options.max_record_bytes),
                Op::AppendNext { payload, .. } => (TooLarge::Entry, payload.len(), options.max_record_bytes),
                Op::Meta { value, .. } => (TooLarge::Meta, value.len(), MAX_META_BYTES),
                Op::Truncate { .. } | Op::Purge(_) => (TooLarge::Entry, 0, options.max_record_bytes),
            };
            if size_bytes > limit_bytes {
                return Err(StoreError::TooLarge {
                    what,
                    size_bytes,
                    limit_bytes,
                });
            }
            // The index does not change the length, so any will do; cloning a payload copies no bytes.
            total = total.saturating_add(op.clone().into_record(0).encoded_bytes());
        }
        let limit_bytes = options.max_batch_bytes();
        if total > limit_bytes {
            return Err(StoreError::TooLarge {
                what: TooLarge::Batch,
                size_bytes: total,
                limit_bytes,
            });
        }
        Ok(total)
    }
}

/// The answer to a batch that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Index of the batch's first entry; where it has none, the next index before it.
    pub first_index: u64,
    /// Index of the next entry after the batch.
    pub next_index: u64,
    /// The frame that holds it.
    pub frame: u64,
}

/// Called on the writer's thread once the outcome is known. It must not block.
pub type Done = Box<dyn FnOnce(Result<Ack, StoreError>) + Send>;

/// A batch on its way to the writer.
pub(super) struct Request {
    pub ops: Vec<Op>,
    pub size_bytes: usize,
    pub done: Done,
}
