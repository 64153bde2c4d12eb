//! The consensus library's own suite for log stores, and what it leaves out: that a reopened log is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::storage::{LogFlushed, RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{EntryPayload, LogState, OptionalSend, RaftLogReader, RaftSnapshotBuilder, Snapshot};

use super::super::blob::Blob;
use super::super::known_peers::KnownPeers;
use super::super::log_state::{Parts, RaftLogState};
use super::super::options::{RaftPeerAddrs, RaftTimings};
use super::super::snapshot_data::SnapshotData;
use super::super::storage::RaftStorage;
use super::super::store_slot::StoreSlot;
use super::super::types::{
    Batch, BatchTag, Membership, RaftEntry, RaftLogId, SnapshotMeta, StorageError, StoredMembership,
    TypeConfig, Vote, log_id, position,
};
use crate::net::peers::{Lane, PeerError, PeerTransport};
use crate::plane::log::store::{LogPosition, SegmentStore, StoreOptions};

/// Reaches nobody.
pub(in crate::plane::log::raft) struct NoTransport;

impl PeerTransport for NoTransport {
    fn ask(
        &self,
        node: u64,
        _addr: std::net::SocketAddr,
        _lane: Lane,
        _question: Bytes,
        _timeout: std::time::Duration,
    ) -> BoxFuture<'_, Result<Bytes, PeerError>> {
        Box::pin(std::future::ready(Err(PeerError::TimedOut { node })))
    }
}

fn open(dir: &std::path::Path) -> (StoreSlot, RaftStorage) {
    let options = StoreOptions {
        segment_size_bytes: 1024 * 1024,
        max_record_bytes: 64 * 1024,
        purged_needs_snapshot: false,
        ..StoreOptions::default()
    };
    let (store, _) = SegmentStore::open(dir, options).unwrap();
    let id = store.id();
    let slot = StoreSlot::new(store);
    let shared = RaftLogState::new(Parts {
        node_id: 1,
        first_peers: BTreeMap::new(),
        timings: RaftTimings::default(),
        max_record_bytes: 64 * 1024,
        store: slot.clone(),
        storage: Default::default(),
        transport: Arc::new(NoTransport),
        known: KnownPeers::new(1, id, slot.clone(), BTreeMap::new()),
        members: StoredMembership::default(),
    });
    (slot, RaftStorage::new(Arc::new(shared)))
}

/// The suite writes logs that no leader ever sends: they begin in the middle, have gaps, or begin again below what was
/// purged. The store refuses all of that, so this fills the gaps in a new log, and hides that it did.
#[derive(Clone)]
struct Gapped {
    storage: RaftStorage,
    filled: Option<RaftLogId>,
    dirs: Arc<std::sync::Mutex<Vec<tempfile::TempDir>>>,
}

impl Gapped {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (_, storage) = open(dir.path());
        Self {
            storage,
            filled: None,
            dirs: Arc::new(std::sync::Mutex::new(vec![dir])),
        }
    }

    /// Goes on in a new log that has the same entries and those in between.
    async fn fill(&mut self, first: &RaftEntry) -> Result<(), StorageError> {
        let kept = self.storage.try_get_log_entries(..first.log_id.index).await?;
        let vote = self.storage.read_vote().await?;
        let begin = kept.first().unwrap_or(first).log_id.index;
        let term = first.log_id.leader_id.term;
        let after_kept = kept.last().map_or(begin, |last| last.log_id.index + 1);
        let between = (after_kept..first.log_id.index).map(|index| entry(term, index, EntryPayload::Blank));
        let entries: Vec<RaftEntry> = kept.into_iter().chain(between).collect();
        let new = Self::new();
        self.dirs.lock().unwrap().append(&mut new.dirs.lock().unwrap());
        self.storage = new.storage;
        if let Some(index) = begin.checked_sub(1) {
            self.filled = Some(log_id(LogPosition { index, term: 0 }));
            self.storage.purge(self.filled.unwrap()).await?;
        }
        if let Some(vote) = vote {
            self.storage.save_vote(&vote).await?;
        }
        if !entries.is_empty() {
            self.storage.blocking_append(entries).await?;
        }
        Ok(())
    }
}

impl RaftLogReader<TypeConfig> for Gapped {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<RaftEntry>, StorageError> {
        self.storage.try_get_log_entries(range).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<RaftEntry>, StorageError> {
        self.storage.limited_get_log_entries(start, end).await
    }
}

impl RaftLogStorage<TypeConfig> for Gapped {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let mut state = self.storage.get_log_state().await?;
        for id in [&mut state.last_purged_log_id, &mut state.last_log_id] {
            if self.filled.is_some() && *id == self.filled {
                *id = None;
            }
        }
        Ok(state)
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        self.storage.save_vote(vote).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        self.storage.read_vote().await
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<TypeConfig>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<RaftEntry> = entries.into_iter().collect();
        let next = self.storage.get_log_state().await?.last_log_id;
        let next = next.map_or(0, |last| last.index + 1);
        if let Some(first) = entries.first()
            && first.log_id.index != next
        {
            self.fill(first).await?;
        }
        self.storage.append(entries, callback).await
    }

    async fn truncate(&mut self, since: RaftLogId) -> Result<(), StorageError> {
        self.storage.truncate(since).await
    }

    async fn purge(&mut self, upto: RaftLogId) -> Result<(), StorageError> {
        if Some(upto)
            == self.filled.map(|filled| {
                log_id(LogPosition {
                    term: 1,
                    ..position(&filled)
                })
            })
        {
            // The suite then calls the gap purged, with a term of its own.
            self.filled = None;
            return Ok(());
        }
        self.storage.purge(upto).await
    }
}

/// A state machine without a state.
#[derive(Clone, Default)]
struct Nothing {
    applied: Option<RaftLogId>,
    members: StoredMembership,
    snapshot: Arc<std::sync::Mutex<Option<SnapshotMeta>>>,
}

impl Nothing {
    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: self.applied,
            last_membership: self.members.clone(),
            snapshot_id: "1".to_owned(),
        }
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Nothing {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        *self.snapshot.lock().unwrap() = Some(self.meta());
        Ok(Snapshot {
            meta: self.meta(),
            snapshot: Box::new(SnapshotData::Nothing),
        })
    }
}

impl RaftStateMachine<TypeConfig> for Nothing {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<RaftLogId>, StoredMembership), StorageError> {
        Ok((self.applied, self.members.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut answers = Vec::new();
        for entry in entries {
            self.applied = Some(entry.log_id);
            if let EntryPayload::Membership(members) = entry.payload {
                self.members = StoredMembership::new(Some(entry.log_id), members);
            }
            answers.push(());
        }
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotData>, StorageError> {
        Ok(Box::new(SnapshotData::Nothing))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        _: Box<SnapshotData>,
    ) -> Result<(), StorageError> {
        self.applied = meta.last_log_id;
        self.members = meta.last_membership.clone();
        *self.snapshot.lock().unwrap() = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        let meta = self.snapshot.lock().unwrap().clone();
        Ok(meta.map(|meta| Snapshot {
            meta,
            snapshot: Box::new(SnapshotData::Nothing),
        }))
    }
}

struct Builder;

impl StoreBuilder<TypeConfig, Gapped, Nothing> for Builder {
    async fn build(&self) -> Result<((), Gapped, Nothing), StorageError> {
        Ok(((), Gapped::new(), Nothing::default()))
    }
}

#[test]
fn the_librarys_suite_passes() {
    Suite::test_all(Builder).unwrap();
}

fn entry(term: u64, index: u64, payload: EntryPayload<TypeConfig>) -> RaftEntry {
    RaftEntry {
        log_id: log_id(LogPosition { index, term }),
        payload,
    }
}

fn some_entries() -> Vec<RaftEntry> {
    let addrs = RaftPeerAddrs {
        raft_addr: "127.0.0.1:1".parse().unwrap(),
        api_addr: "[::1]:2".parse().unwrap(),
    };
    let members = Membership::new(
        vec![BTreeSet::from([1])],
        BTreeMap::from([(1, addrs), (2, addrs)]),
    );
    let batch = |number: u64| {
        let tag = BatchTag {
            node: 1,
            life: u64::MAX,
            number,
        };
        let commands = vec![Blob(Bytes::from_static(b"one")), Blob(Bytes::new())];
        EntryPayload::Normal(Batch { tag, commands })
    };
    vec![
        entry(0, 0, EntryPayload::Membership(members)),
        entry(1, 1, EntryPayload::Blank),
        entry(1, 2, batch(1)),
        entry(1, 3, batch(2)),
        entry(2, 4, EntryPayload::Blank),
    ]
}

#[tokio::test]
async fn a_reopened_log_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let vote = Vote::new_committed(2, 7);
    {
        let (slot, mut storage) = open(dir.path());
        storage.blocking_append(some_entries()).await.unwrap();
        storage.save_vote(&vote).await.unwrap();
        storage.truncate(some_entries()[4].log_id).await.unwrap();
        storage.purge(some_entries()[0].log_id).await.unwrap();
        slot.close();
    }
    let (slot, mut storage) = open(dir.path());
    assert_eq!(storage.read_vote().await.unwrap(), Some(vote));
    let state = storage.get_log_state().await.unwrap();
    assert_eq!(state.last_purged_log_id, Some(some_entries()[0].log_id));
    assert_eq!(state.last_log_id, Some(some_entries()[3].log_id));
    let found = storage.try_get_log_entries(..).await.unwrap();
    assert_eq!(found, some_entries()[1..4]);
    slot.close();
}
