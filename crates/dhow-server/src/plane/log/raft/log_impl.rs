//! The raft log as the reducer sees it.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::EntryPayload;
use tokio::sync::mpsc;

use super::entry_form::from_stored;
use super::limits::COMMAND_OVERHEAD_BYTES;
use super::proposer::Proposal;
use super::raft_log::RaftLog;
use super::snapshot_data::{read_preamble, unreadable, write_preamble};
use crate::plane::log::store::{Entry, LogPosition, SnapshotReader, SnapshotWriter, StoreError, TooLarge};
use crate::plane::log::{Log, LogStatus, ProposalId, ProposeError};

impl Log for RaftLog {
    fn propose(&self, id: ProposalId, commands: Vec<Bytes>) -> Result<(), ProposeError> {
        let leadership = self.engine().shared.leadership();
        if !leadership.is_here {
            let leader = leadership.leader;
            return Err(ProposeError::NotLeader { leader });
        }
        let size_bytes = commands
            .iter()
            .map(|command| command.len() + COMMAND_OVERHEAD_BYTES)
            .sum();
        let limit_bytes = self.engine().shared.max_proposal_bytes;
        if size_bytes > limit_bytes {
            let what = TooLarge::Batch;
            return Err(ProposeError::from(StoreError::TooLarge {
                what,
                size_bytes,
                limit_bytes,
            }));
        }
        let proposal = Proposal {
            id,
            commands,
            size_bytes,
        };
        self.inner
            .proposals
            .try_send(proposal)
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => ProposeError::Full,
                mpsc::error::TrySendError::Closed(_) => StoreError::Closed.into(),
            })
    }

    fn status(&self) -> LogStatus {
        let shared = &self.engine().shared;
        LogStatus {
            leadership: shared.leadership(),
            first_index: shared.store.bounds().map_or(0, |bounds| bounds.first_index),
            committed_index: self.engine().applied().map_or(0, |at| at.index),
        }
    }

    fn read(&self, from: u64, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        let end = self.engine().applied().map_or(0, |at| at.index.saturating_add(1));
        let mut from = from;
        loop {
            let stored = self
                .engine()
                .shared
                .store
                .with(|store| store.read(from..end.max(from), max_bytes))?;
            let entries = commands(&stored)?;
            // Entries about members and beginnings of terms have no commands: what follows them may have some.
            match stored.last() {
                Some(last) if entries.is_empty() => from = last.index.saturating_add(1),
                Some(_) | None => return Ok(entries),
            }
        }
    }

    fn newest_snapshot(&self) -> Result<Option<SnapshotReader>, StoreError> {
        self.engine().shared.store.with(|store| {
            let Some(mut reader) = store.snapshots().newest()? else {
                return Ok(None);
            };
            read_preamble(&mut reader).map_err(unreadable)?;
            Ok(Some(reader))
        })
    }

    fn begin_snapshot(&self, at: LogPosition) -> Result<SnapshotWriter, StoreError> {
        let shared = &self.engine().shared;
        let members = shared.members_at(at).ok_or_else(|| StoreError::BadOptions {
            why: format!("nobody knows who the members were at entry {}", at.index),
        })?;
        let mut writer = shared.store.with(|store| store.snapshots().create(at))?;
        write_preamble(&mut writer, &members).map_err(|error| StoreError::BadOptions {
            why: format!("the members cannot be written into the snapshot ({error})"),
        })?;
        Ok(writer)
    }

    fn compact(&self, snapshot: SnapshotWriter) -> Result<(), StoreError> {
        let shared = &self.engine().shared;
        let at = snapshot.position();
        let expected = shared.store.bounds()?.next_index;
        if at.index >= expected {
            let got = at.index;
            return Err(StoreError::NotNext { expected, got });
        }
        shared.store.with(|_| snapshot.finish())?;
        shared.forget_members_before(at);
        // A wake-up that waits already serves this one too.
        let _ = self.inner.compactions.try_send(());
        Ok(())
    }

    fn install(&self, _snapshot: SnapshotWriter) -> Result<(), StoreError> {
        Err(StoreError::BadOptions {
            why: "a raft log takes snapshots from its leader alone".to_owned(),
        })
    }

    fn barrier(&self) -> BoxFuture<'_, Result<u64, ProposeError>> {
        Box::pin(RaftLog::barrier(self))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shutdown())
    }
}

/// The commands in entries of the log, each with the place of its entry.
fn commands(stored: &[Entry]) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    for entry in stored {
        let read = from_stored(entry).map_err(|error| StoreError::BadOptions {
            why: format!("entry {} is not one of a raft log ({error})", entry.index),
        })?;
        if let EntryPayload::Normal(batch) = read.payload {
            let LogPosition { index, term } = entry.position();
            entries.extend(batch.commands.into_iter().map(|command| Entry {
                index,
                term,
                payload: command.0,
            }));
        }
    }
    Ok(entries)
}
