//! The consensus library's state machine: what is committed goes to the reducer, which owns the state. Nothing is
//! applied here.

use std::io;
use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageIOError};
use tokio::sync::mpsc;

use super::log_state::RaftLogState;
use super::pending::Part;
use super::snapshot_data::{SnapshotData, meta, read_preamble, unreadable, write_preamble};
use super::types::{
    Batch, RaftEntry, RaftLogId, SnapshotMeta, StorageError, StoredMembership, TypeConfig, position,
};
use crate::plane::log::store::{Entry, LogPosition, SegmentStore, StoreError};
use crate::plane::log::{CommittedPart, LogEvent, ProposeError};

/// The consensus library's state machine: it passes committed entries and snapshots on to the reducer, and settles the
/// batches that they belong to.
pub struct Machine {
    shared: Arc<RaftLogState>,
    events: mpsc::Sender<LogEvent>,
    applied: Option<RaftLogId>,
}

impl Machine {
    /// A machine whose state is the newest snapshot.
    pub fn new(
        shared: Arc<RaftLogState>,
        events: mpsc::Sender<LogEvent>,
        applied: Option<RaftLogId>,
    ) -> Self {
        Self {
            shared,
            events,
            applied,
        }
    }

    async fn tell(&self, event: LogEvent) -> Result<(), StorageError> {
        self.events.send(event).await.map_err(|_| {
            let gone = AnyError::error("the reducer has ended");
            StorageIOError::write_state_machine(gone).into()
        })
    }

    async fn refuse(&self, parts: Vec<Part>, cause: ProposeError) -> Result<(), StorageError> {
        for part in parts {
            let (proposal, cause) = (part.proposal, cause.clone());
            self.tell(LogEvent::Refused { proposal, cause }).await?;
        }
        Ok(())
    }

    async fn take(&mut self, entry: RaftEntry) -> Result<(), StorageError> {
        let at = position(&entry.log_id);
        self.applied = Some(entry.log_id);
        let parts = match entry.payload {
            EntryPayload::Blank => Vec::new(),
            EntryPayload::Membership(membership) => {
                let members = StoredMembership::new(Some(entry.log_id), membership);
                self.take_members(members).await?;
                Vec::new()
            }
            EntryPayload::Normal(batch) => self.parts(at, batch),
        };
        self.tell(LogEvent::Committed { at, parts }).await?;
        let outrun = self.shared.pending.outrun(at);
        let leader = self.shared.leadership().leader;
        self.refuse(outrun, ProposeError::NotLeader { leader }).await
    }

    async fn take_members(&self, members: StoredMembership) -> Result<(), StorageError> {
        let before = self.shared.members();
        let gone = before
            .nodes()
            .filter(|(id, _)| members.membership().get_node(id).is_none());
        let gone: Vec<u64> = gone.map(|(id, _)| *id).collect();
        self.shared.members_changed(members);
        let forgotten = self.shared.known.forget(gone).await;
        forgotten.map_err(|error| self.cannot(error))
    }

    /// The proposals of a batch, where they were made here; else all of it as one.
    fn parts(&self, at: LogPosition, batch: Batch) -> Vec<CommittedPart> {
        let mut entries = batch.commands.into_iter().map(|command| Entry {
            index: at.index,
            term: at.term,
            payload: command.0,
        });
        match self.shared.pending.committed(batch.tag) {
            Some(parts) => parts
                .into_iter()
                .map(|part| CommittedPart {
                    proposal: Some(part.proposal),
                    entries: entries.by_ref().take(part.commands).collect(),
                })
                .collect(),
            None => vec![CommittedPart {
                proposal: None,
                entries: entries.collect(),
            }],
        }
    }

    fn cannot(&self, error: StoreError) -> StorageError {
        let cause = AnyError::new(&error);
        self.shared.failed(error);
        StorageIOError::write_snapshot(None, cause).into()
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotBuilder = NewestSnapshot;

    async fn applied_state(&mut self) -> Result<(Option<RaftLogId>, StoredMembership), StorageError> {
        Ok((self.applied, self.shared.members()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut answers = Vec::new();
        for entry in entries {
            self.take(entry).await?;
            answers.push(());
        }
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> NewestSnapshot {
        NewestSnapshot {
            shared: Arc::clone(&self.shared),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotData>, StorageError> {
        // Snapshots are received beside the library, which only sees them when they are complete.
        Ok(Box::new(SnapshotData::Nothing))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<SnapshotData>,
    ) -> Result<(), StorageError> {
        let Some(last) = meta.last_log_id else {
            return Ok(());
        };
        let at = position(&last);
        let installed = install(&self.shared, at, meta.last_membership.clone(), *snapshot).await;
        self.shared.installing.send_replace(None);
        installed.map_err(|error| self.cannot(error))?;
        self.applied = Some(last);
        self.take_members(meta.last_membership.clone()).await?;
        self.tell(LogEvent::SnapshotInstalled { at }).await?;
        let covered = self.shared.pending.covered(at);
        self.refuse(covered, ProposeError::Unknown).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        newest(&self.shared).await.map_err(|error| self.cannot(error))
    }
}

/// Puts a snapshot from elsewhere in force.
async fn install(
    shared: &RaftLogState,
    at: LogPosition,
    members: StoredMembership,
    snapshot: SnapshotData,
) -> Result<(), StoreError> {
    let work = move |store: &SegmentStore| {
        let writer = match snapshot {
            SnapshotData::Received(writer) => writer,
            SnapshotData::Stored(mut reader) => {
                let mut writer = store.snapshots().create(at)?;
                let copied =
                    write_preamble(&mut writer, &members).and_then(|()| io::copy(&mut reader, &mut writer));
                copied.map_err(|error| StoreError::BadOptions {
                    why: format!("the snapshot cannot be copied ({error})"),
                })?;
                writer
            }
            SnapshotData::Nothing => return Ok(()),
        };
        store.install(writer)
    };
    shared.store.blocking(work).await
}

/// The newest snapshot, and what it is of.
async fn newest(shared: &RaftLogState) -> Result<Option<Snapshot<TypeConfig>>, StoreError> {
    let work = |store: &SegmentStore| {
        let Some(mut reader) = store.snapshots().newest()? else {
            return Ok(None);
        };
        let members = read_preamble(&mut reader).map_err(unreadable)?;
        Ok(Some(Snapshot {
            meta: meta(reader.position(), members),
            snapshot: Box::new(SnapshotData::Stored(reader)),
        }))
    };
    shared.store.blocking(work).await
}

/// What the library calls making a snapshot. The reducer makes them; this shows the newest one.
pub struct NewestSnapshot {
    shared: Arc<RaftLogState>,
}

impl RaftSnapshotBuilder<TypeConfig> for NewestSnapshot {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        let found = newest(&self.shared).await;
        let cannot = |cause: AnyError| StorageError::from(StorageIOError::read_snapshot(None, cause));
        found
            .map_err(|error| cannot(AnyError::new(&error)))?
            .ok_or_else(|| cannot(AnyError::error("there is no snapshot yet")))
    }
}
