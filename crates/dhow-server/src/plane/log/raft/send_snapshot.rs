//! Sends the newest snapshot to a member that is too far behind, in parts.

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use openraft::Snapshot;

use super::ask::AskError;
use super::blob::Blob;
use super::entry_form::StoredMembershipForm;
use super::limits::{SNAPSHOT_INSTALL_TIMEOUT_MS, SNAPSHOT_MESSAGE_BYTES, SNAPSHOT_MESSAGE_TIMEOUT_MS};
use super::log_state::RaftLogState;
use super::snapshot_data::SnapshotData;
use super::types::{TypeConfig, Vote};
use super::vote_form::VoteForm;
use super::wire::{Answer, At, Question, SnapshotPart};
use crate::net::peers::Lane;
use crate::plane::log::store::SnapshotReader;

/// Why a snapshot was not sent. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("the snapshot did not arrive")]
    Ask(#[source] AskError),
    #[error("the snapshot cannot be read")]
    Read(#[source] std::io::Error),
    #[error("there is no snapshot to send")]
    Nothing,
    #[error("node {node} lost the parts that it had")]
    Lost { node: u64 },
}

/// Sends a snapshot and waits until it is in force there; returns the vote that the other node has by then.
pub async fn send_snapshot(
    shared: &RaftLogState,
    node: u64,
    addr: SocketAddr,
    vote: Vote,
    snapshot: Snapshot<TypeConfig>,
) -> Result<Vote, SendError> {
    let (SnapshotData::Stored(mut reader), Some(last)) = (*snapshot.snapshot, snapshot.meta.last_log_id)
    else {
        return Err(SendError::Nothing);
    };
    let members = StoredMembershipForm::of(&snapshot.meta.last_membership);
    let mut offset = 0;
    loop {
        let (back, bytes) = read_part(reader).await?;
        reader = back;
        let is_last = bytes.len() < SNAPSHOT_MESSAGE_BYTES;
        let size_bytes = bytes.len() as u64;
        let part = SnapshotPart {
            vote: VoteForm::of(&vote),
            at: At {
                term: last.leader_id.term,
                index: last.index,
            },
            members: members.clone(),
            offset,
            bytes: Blob(bytes),
            is_last,
        };
        let timeout = Duration::from_millis(match is_last {
            true => SNAPSHOT_INSTALL_TIMEOUT_MS,
            false => SNAPSHOT_MESSAGE_TIMEOUT_MS,
        });
        let asked = shared.ask(node, addr, Lane::Snapshot, Question::Snapshot(part), timeout);
        match asked.await.map_err(SendError::Ask)? {
            Answer::Snapshot { vote: theirs } => {
                let theirs = theirs.into_vote();
                if is_last || theirs > vote {
                    return Ok(theirs);
                }
            }
            Answer::SnapshotAgain => return Err(SendError::Lost { node }),
            Answer::Appended
            | Answer::AppendedUpTo(_)
            | Answer::Conflict
            | Answer::HigherVote(_)
            | Answer::Voted { .. }
            | Answer::PreVoted { .. }
            | Answer::Hello { .. }
            | Answer::Done
            | Answer::Refused(_) => return Err(SendError::Ask(AskError::OffTopic { node })),
        }
        offset += size_bytes;
    }
}

/// Reads the next part, on a thread that may block. A part that is not full is the last.
async fn read_part(mut reader: SnapshotReader) -> Result<(SnapshotReader, Bytes), SendError> {
    let work = move || {
        let mut bytes = Vec::with_capacity(SNAPSHOT_MESSAGE_BYTES);
        let read = reader
            .by_ref()
            .take(SNAPSHOT_MESSAGE_BYTES as u64)
            .read_to_end(&mut bytes);
        read.map(|_| (reader, Bytes::from(bytes)))
    };
    let read = tokio::task::spawn_blocking(work).await;
    read.unwrap_or_else(|_| Err(std::io::Error::other("the work was cut off")))
        .map_err(SendError::Read)
}
