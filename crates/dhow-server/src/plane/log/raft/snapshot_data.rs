//! What is in a snapshot of a raft log: first who the members were, then the state. And how one is handed around.

use std::io::{Read, Write};

use super::entry_form::{FormError, StoredMembershipForm, decode, encode};
use super::types::{SnapshotMeta, StoredMembership, log_id};
use crate::plane::log::store::{LogPosition, SnapshotReader, SnapshotWriter, StoreError};

/// The version of the part in front of the state.
const PREAMBLE_VERSION: u8 = 1;

/// Largest part in front of the state: 28 members at 50 bytes, three sets of ids, the version; rounded up.
const PREAMBLE_MAX_BYTES: usize = 16 * 1024;

/// A snapshot on its way through the consensus library.
#[derive(Debug)]
pub enum SnapshotData {
    /// One that is on this node's disk, from the first byte of its state.
    Stored(SnapshotReader),
    /// One that came from another node, complete but not yet in force.
    Received(SnapshotWriter),
    /// None: with this a node only hears of a vote.
    Nothing,
}

/// Why the part in front of the state cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PreambleError {
    #[error("the snapshot cannot be read")]
    Io(#[source] std::io::Error),
    #[error("the members in the snapshot cannot be read")]
    Form(#[source] FormError),
    #[error("the members in the snapshot take {size_bytes} bytes, which is above {PREAMBLE_MAX_BYTES}")]
    TooLarge { size_bytes: usize },
}

/// Writes who the members are, before the state.
pub fn write_preamble(writer: &mut impl Write, members: &StoredMembership) -> std::io::Result<()> {
    let bytes = encode(PREAMBLE_VERSION, &StoredMembershipForm::of(members));
    // A few hundred bytes, see the limit.
    writer.write_all(&(bytes.len() as u32).to_le_bytes())?;
    writer.write_all(&bytes)
}

/// Reads who the members were; what follows is the state.
pub fn read_preamble(reader: &mut impl Read) -> Result<StoredMembership, PreambleError> {
    let mut length = [0; 4];
    reader.read_exact(&mut length).map_err(PreambleError::Io)?;
    let size_bytes = u32::from_le_bytes(length) as usize;
    if size_bytes > PREAMBLE_MAX_BYTES {
        return Err(PreambleError::TooLarge { size_bytes });
    }
    let mut bytes = vec![0; size_bytes];
    reader.read_exact(&mut bytes).map_err(PreambleError::Io)?;
    decode::<StoredMembershipForm>("the part in front of the state", PREAMBLE_VERSION, &bytes)
        .map(StoredMembershipForm::into_stored)
        .map_err(PreambleError::Form)
}

/// The same trouble, as trouble of the store.
pub fn unreadable(error: PreambleError) -> StoreError {
    StoreError::BadOptions {
        why: format!("the newest snapshot is not one of a raft log ({error})"),
    }
}

/// What the consensus library knows a snapshot by.
pub fn meta(at: LogPosition, members: StoredMembership) -> SnapshotMeta {
    SnapshotMeta {
        last_log_id: Some(log_id(at)),
        last_membership: members,
        snapshot_id: format!("{}-{}", at.term, at.index),
    }
}
