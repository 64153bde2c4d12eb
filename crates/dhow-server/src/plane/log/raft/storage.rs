//! The consensus library's log on the store: entries, the vote, what is cut off and what is forgotten.
//!
//! An append is one frame of the store, and answered when it is durable. The position up to which the log is
//! committed is not kept: it would cost a write for each commit, and is known again as soon as a leader speaks.

use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, EntryPayload, ErrorSubject, ErrorVerb, LogState, OptionalSend, RaftLogReader, StorageIOError,
};

use super::blob::Blob;
use super::entry_form::{decode, encode, from_stored, to_stored};
use super::limits::APPEND_BYTES;
use super::log_state::RaftLogState;
use super::types::{RaftEntry, RaftLogId, StorageError, TypeConfig, Vote, log_id, position};
use super::vote_form::{VOTE_VERSION, VoteForm};
use super::wire::At;
use crate::plane::log::store::limits::ENTRY_OVERHEAD_BYTES;
use crate::plane::log::store::{Entry, LogPosition, MetaKey, Op, StoreError};

/// The consensus library's log storage on top of the segment store.
#[derive(Clone)]
pub struct RaftStorage {
    shared: Arc<RaftLogState>,
}

impl RaftStorage {
    pub fn new(shared: Arc<RaftLogState>) -> Self {
        Self { shared }
    }

    async fn entries(&self, start: u64, end: u64, max_bytes: usize) -> Result<Vec<RaftEntry>, StorageError> {
        let store = &self.shared.store;
        let bounds = store
            .bounds()
            .map_err(|error| self.cannot(ErrorVerb::Read, error))?;
        let start = start.max(bounds.first_index);
        if start >= end.min(bounds.next_index) {
            return Ok(Vec::new());
        }
        let stored = store
            .read(start..end, max_bytes)
            .await
            .map_err(|error| self.cannot(ErrorVerb::Read, error))?;
        let mut entries = Vec::with_capacity(stored.len());
        for stored in &stored {
            let entry = from_stored(stored).map_err(|error| {
                StorageIOError::read_log_entry(log_id(stored.position()), AnyError::new(&error))
            })?;
            entries.push(entry);
        }
        Ok(entries)
    }

    async fn write(&self, ops: Vec<Op>) -> Result<(), StorageError> {
        let committed = self.shared.store.commit(ops).await;
        committed.map_err(|error| self.cannot(ErrorVerb::Write, error))
    }

    /// To those who follow this node, where it leads; all that came before is written already.
    fn send_ahead(&self, entries: &[Entry]) {
        let Ok(bounds) = self.shared.store.bounds() else {
            return;
        };
        let entries = entries
            .iter()
            .map(|entry| (entry.position().into(), Blob(entry.payload.clone())));
        let entries: Vec<(At, Blob)> = entries.collect();
        let previous = bounds.last.map(At::from);
        self.shared.ahead.send(&self.shared, previous, &entries);
    }

    fn cannot(&self, verb: ErrorVerb, error: StoreError) -> StorageError {
        let cause = AnyError::new(&error);
        self.shared.failed(error);
        StorageIOError::new(ErrorSubject::Logs, verb, cause).into()
    }

    /// A snapshot that is being installed is in force before the entries that it covers go.
    async fn installed(&self, upto: LogPosition) {
        let mut installing = self.shared.installing.subscribe();
        // The sender lives as long as this.
        let _ = installing.wait_for(|installing| *installing != Some(upto)).await;
    }
}

fn start_of(range: &impl RangeBounds<u64>) -> u64 {
    match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    }
}

fn end_of(range: &impl RangeBounds<u64>) -> u64 {
    match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    }
}

impl RaftLogReader<TypeConfig> for RaftStorage {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<RaftEntry>, StorageError> {
        self.entries(start_of(&range), end_of(&range), usize::MAX).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<RaftEntry>, StorageError> {
        self.entries(start, end, APPEND_BYTES).await
    }
}

impl RaftLogStorage<TypeConfig> for RaftStorage {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let bounds = self.shared.store.bounds();
        let bounds = bounds.map_err(|error| self.cannot(ErrorVerb::Read, error))?;
        Ok(LogState {
            last_purged_log_id: bounds.purged.map(log_id),
            last_log_id: bounds.last.map(log_id),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let value = encode(VOTE_VERSION, &VoteForm::of(vote));
        let key = MetaKey::Vote;
        self.write(vec![Op::Meta { key, value }]).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        let found = self.shared.store.meta(MetaKey::Vote);
        let found = found.map_err(|error| self.cannot(ErrorVerb::Read, error))?;
        let Some(bytes) = found.filter(|bytes| !bytes.is_empty()) else {
            return Ok(None);
        };
        let mut form: VoteForm = decode("the vote", VOTE_VERSION, &bytes)
            .map_err(|error| StorageIOError::read_vote(AnyError::new(&error)))?;
        // A leader that restarts does not lead: the library would let it go on in its old term without knowing what
        // it had committed, and its reads would be old. It stands for election like everybody else.
        form.is_granted &= form.voted_for != Some(self.shared.node_id);
        Ok(Some(form.into_vote()))
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<TypeConfig>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut all = Vec::new();
        for entry in entries {
            if let EntryPayload::Normal(batch) = &entry.payload {
                self.shared.pending.appended(batch.tag, position(&entry.log_id));
            }
            all.push(to_stored(entry));
        }
        self.send_ahead(&all);
        let mut frame = Vec::new();
        let mut frame_bytes = 0;
        for stored in all {
            let cost = stored.payload.len() + ENTRY_OVERHEAD_BYTES;
            // One frame, but where another server sent more than one frame holds.
            if frame_bytes + cost > self.shared.max_record_bytes && !frame.is_empty() {
                self.write(std::mem::take(&mut frame)).await?;
                frame_bytes = 0;
            }
            frame_bytes += cost;
            frame.push(Op::Append(stored));
        }
        self.write(frame).await?;
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, since: RaftLogId) -> Result<(), StorageError> {
        self.write(vec![Op::Truncate { from: since.index }]).await
    }

    async fn purge(&mut self, upto: RaftLogId) -> Result<(), StorageError> {
        let upto = position(&upto);
        self.installed(upto).await;
        self.write(vec![Op::Purge(upto)]).await
    }
}
