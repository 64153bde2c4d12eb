//! The records inside a frame, and the entries and positions that callers name.
//!
//! Integers are little-endian. A record is a kind byte and fixed fields, then its bytes. Called by the writer
//! and by recovery; decoding never trusts a length before it has checked it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::limits::MAX_META_BYTES;

/// A place in the log: the entry's index and the term it was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPosition {
    /// Index of the entry.
    pub index: u64,
    /// Term of the leader that wrote it.
    pub term: u64,
}

impl LogPosition {
    /// The position as the value of a metadata key.
    pub fn to_meta(self) -> Bytes {
        let mut value = Vec::with_capacity(16);
        put_position(&mut value, self);
        Bytes::from(value)
    }

    /// Reads what [`LogPosition::to_meta`] wrote.
    pub fn from_meta(value: &Bytes) -> Option<LogPosition> {
        let mut rest = value.clone();
        take_position(&mut rest).filter(|_| rest.is_empty())
    }
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its index.
    pub index: u64,
    /// Term of the leader that wrote it.
    pub term: u64,
    /// Its bytes, which the store never looks into.
    pub payload: Bytes,
}

impl Entry {
    /// Where the entry stands.
    pub fn position(&self) -> LogPosition {
        LogPosition {
            index: self.index,
            term: self.term,
        }
    }
}

/// What the store keeps beside the entries, one value for each key, the last one written counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetaKey {
    /// The vote of this node.
    Vote,
    /// The last position known to be committed.
    Committed,
    /// Who this node is, so that a directory is not opened as another node's.
    Identity,
    /// The position of a snapshot that is being installed over the log.
    Install,
}

impl MetaKey {
    /// Every key, in the order of their codes.
    pub const ALL: [MetaKey; 4] = [
        MetaKey::Vote,
        MetaKey::Committed,
        MetaKey::Identity,
        MetaKey::Install,
    ];

    fn code(self) -> u8 {
        match self {
            MetaKey::Vote => 1,
            MetaKey::Committed => 2,
            MetaKey::Identity => 3,
            MetaKey::Install => 4,
        }
    }

    fn from_code(code: u8) -> Option<MetaKey> {
        MetaKey::ALL.into_iter().find(|key| key.code() == code)
    }
}

/// Everything that recovery must know before it reads a segment: first record of the first frame of each
/// segment, so that the segments before it can be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// Index of the next entry to be appended.
    pub next_index: u64,
    /// The last position that was purged.
    pub purged: Option<LogPosition>,
    /// The values beside the entries.
    pub metas: BTreeMap<MetaKey, Bytes>,
}

/// One record of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// An entry at the end of the log.
    Append(Entry),
    /// The entries from this index on are no longer part of the log.
    Truncate {
        /// First index that goes.
        from: u64,
    },
    /// The entries up to this position are covered by a snapshot.
    Purge(LogPosition),
    /// A value beside the entries.
    Meta {
        /// Which one.
        key: MetaKey,
        /// Its bytes.
        value: Bytes,
    },
    /// The state at the start of a segment.
    Checkpoint(Checkpoint),
}

const KIND_APPEND: u8 = 1;
const KIND_TRUNCATE: u8 = 2;
const KIND_PURGE: u8 = 3;
const KIND_META: u8 = 4;
const KIND_CHECKPOINT: u8 = 5;

/// Bytes of an append record besides its payload: kind, term, index, length.
pub const APPEND_HEADER_BYTES: usize = 1 + 8 + 8 + 4;
/// Bytes of a metadata record besides its value: kind, key, length.
const META_HEADER_BYTES: usize = 1 + 1 + 4;
/// Largest checkpoint: 27 bytes of fixed fields and every key at its limit.
pub const MAX_CHECKPOINT_BYTES: usize = 27 + MetaKey::ALL.len() * (1 + 4 + MAX_META_BYTES);

impl Record {
    /// Bytes that [`Record::encode`] adds.
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Record::Append(entry) => APPEND_HEADER_BYTES + entry.payload.len(),
            Record::Truncate { .. } => 1 + 8,
            Record::Purge(_) => 1 + 8 + 8,
            Record::Meta { value, .. } => META_HEADER_BYTES + value.len(),
            Record::Checkpoint(checkpoint) => {
                27 + checkpoint
                    .metas
                    .values()
                    .map(|value| 1 + 4 + value.len())
                    .sum::<usize>()
            }
        }
    }

    /// Adds the record to a frame's records.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Append(entry) => {
                out.push(KIND_APPEND);
                out.extend_from_slice(&entry.term.to_le_bytes());
                out.extend_from_slice(&entry.index.to_le_bytes());
                put_bytes(out, &entry.payload);
            }
            Record::Truncate { from } => {
                out.push(KIND_TRUNCATE);
                out.extend_from_slice(&from.to_le_bytes());
            }
            Record::Purge(up_to) => {
                out.push(KIND_PURGE);
                put_position(out, *up_to);
            }
            Record::Meta { key, value } => {
                out.push(KIND_META);
                out.push(key.code());
                put_bytes(out, value);
            }
            Record::Checkpoint(checkpoint) => {
                out.push(KIND_CHECKPOINT);
                out.extend_from_slice(&checkpoint.next_index.to_le_bytes());
                out.push(u8::from(checkpoint.purged.is_some()));
                put_position(out, checkpoint.purged.unwrap_or_default());
                out.push(checkpoint.metas.len() as u8);
                for (key, value) in &checkpoint.metas {
                    out.push(key.code());
                    put_bytes(out, value);
                }
            }
        }
    }

    /// Takes the next record off the front of `rest`; `None` when it is not one.
    pub fn decode(rest: &mut Bytes) -> Option<Record> {
        match take_u8(rest)? {
            KIND_APPEND => {
                let term = take_u64(rest)?;
                let index = take_u64(rest)?;
                Some(Record::Append(Entry {
                    index,
                    term,
                    payload: take_bytes(rest)?,
                }))
            }
            KIND_TRUNCATE => Some(Record::Truncate {
                from: take_u64(rest)?,
            }),
            KIND_PURGE => Some(Record::Purge(take_position(rest)?)),
            KIND_META => {
                let key = MetaKey::from_code(take_u8(rest)?)?;
                Some(Record::Meta {
                    key,
                    value: take_bytes(rest)?,
                })
            }
            KIND_CHECKPOINT => take_checkpoint(rest).map(Record::Checkpoint),
            _ => None,
        }
    }
}

fn take_checkpoint(rest: &mut Bytes) -> Option<Checkpoint> {
    let next_index = take_u64(rest)?;
    let has_purged = take_u8(rest)?;
    let position = take_position(rest)?;
    let purged = match has_purged {
        0 if position == LogPosition::default() => None,
        1 => Some(position),
        _ => return None,
    };
    let mut metas = BTreeMap::new();
    for _ in 0..take_u8(rest)? {
        let key = MetaKey::from_code(take_u8(rest)?)?;
        if metas.insert(key, take_bytes(rest)?).is_some() {
            return None;
        }
    }
    Some(Checkpoint {
        next_index,
        purged,
        metas,
    })
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Sizes are checked against limits far below 4 GiB before a record is made.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_position(out: &mut Vec<u8>, position: LogPosition) {
    out.extend_from_slice(&position.index.to_le_bytes());
    out.extend_from_slice(&position.term.to_le_bytes());
}

fn take(rest: &mut Bytes, count: usize) -> Option<Bytes> {
    (rest.len() >= count).then(|| rest.split_to(count))
}

fn take_u8(rest: &mut Bytes) -> Option<u8> {
    take(rest, 1)?.first().copied()
}

fn take_u32(rest: &mut Bytes) -> Option<u32> {
    Some(u32::from_le_bytes(take(rest, 4)?.as_ref().try_into().ok()?))
}

fn take_u64(rest: &mut Bytes) -> Option<u64> {
    Some(u64::from_le_bytes(take(rest, 8)?.as_ref().try_into().ok()?))
}

fn take_position(rest: &mut Bytes) -> Option<LogPosition> {
    Some(LogPosition {
        index: take_u64(rest)?,
        term: take_u64(rest)?,
    })
}

fn take_bytes(rest: &mut Bytes) -> Option<Bytes> {
    let len = take_u32(rest)? as usize;
    take(rest, len)
}
