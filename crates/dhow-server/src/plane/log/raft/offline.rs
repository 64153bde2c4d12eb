//! What is done to a raft directory while no log is open in it: a survivor goes on alone, or a new cluster begins
//! from a snapshot of the state. Both block.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use openraft::EntryPayload;

use super::entry_form::{decode, encode, from_stored};
use super::error::RaftOpenError;
use super::known_peers::{identity_op, read_identity};
use super::options::RaftPeerAddrs;
use super::snapshot_data::{read_preamble, unreadable, write_preamble};
use super::store_slot::StoreSlot;
use super::types::{Membership, StoredMembership, Vote, log_id};
use super::vote_form::{VOTE_VERSION, VoteForm};
use crate::plane::log::store::{Batch, Entry, LogPosition, MetaKey, Op, SegmentStore, StoreId, StoreOptions};

/// Read from the log at a time.
const READ_BYTES: usize = 4 * 1024 * 1024;

pub(super) fn vote_op(vote: Vote) -> Op {
    Op::Meta {
        key: MetaKey::Vote,
        value: encode(VOTE_VERSION, &VoteForm::of(&vote)),
    }
}

/// The term that the node has voted in.
pub(super) fn voted_term(slot: &StoreSlot) -> Result<u64, RaftOpenError> {
    let vote = slot.meta(MetaKey::Vote).map_err(RaftOpenError::Store)?;
    let Some(bytes) = vote.filter(|bytes| !bytes.is_empty()) else {
        return Ok(0);
    };
    let form: VoteForm = decode("the vote", VOTE_VERSION, &bytes).map_err(RaftOpenError::Form)?;
    Ok(form.term)
}

/// A raft directory in which no log is open.
pub struct OfflineRaft {
    slot: StoreSlot,
    node_id: u64,
    /// The servers that it has met.
    met: BTreeSet<u64>,
    voted_term: u64,
}

/// What stands in one, as far as it is not in the snapshot.
pub struct KeptLog {
    /// The state of the newest snapshot, where there is one.
    pub state: Option<Vec<u8>>,
    /// What was proposed after it, in order, each with its place: also what no majority may have.
    pub commands: Vec<Entry>,
    /// The highest term that this node has seen.
    pub term: u64,
}

impl OfflineRaft {
    /// Opens the directory of this node.
    pub fn open(dir: &Path, store: StoreOptions, node_id: u64) -> Result<Self, RaftOpenError> {
        let (store, _) = SegmentStore::open(dir, store).map_err(RaftOpenError::Store)?;
        let slot = StoreSlot::new(store);
        let met = match read_identity(&slot)? {
            Some((found, _)) if found != node_id => {
                let (dir, wanted) = (dir.to_owned(), node_id);
                return Err(RaftOpenError::AnotherNode { dir, found, wanted });
            }
            Some((_, peers)) => peers.into_keys().collect(),
            None => return Err(RaftOpenError::Empty { dir: dir.to_owned() }),
        };
        if slot.bounds().map_err(RaftOpenError::Store)?.last.is_none() {
            return Err(RaftOpenError::Empty { dir: dir.to_owned() });
        }
        let voted_term = voted_term(&slot)?;
        Ok(Self {
            slot,
            node_id,
            met,
            voted_term,
        })
    }

    /// Everything that stands in its log counts.
    pub fn read(&self) -> Result<KeptLog, RaftOpenError> {
        let snapshot = self.slot.with(|store| store.snapshots().newest());
        let snapshot = snapshot.map_err(RaftOpenError::Store)?;
        let bounds = self.slot.bounds().map_err(RaftOpenError::Store)?;
        let (mut state, mut next) = (None, bounds.first_index);
        if let Some(mut reader) = snapshot {
            next = next.max(reader.position().index.saturating_add(1));
            read_preamble(&mut reader).map_err(|error| RaftOpenError::Store(unreadable(error)))?;
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map_err(RaftOpenError::Snapshot)?;
            state = Some(bytes);
        }
        let mut commands = Vec::new();
        while next < bounds.next_index {
            let stored = self
                .slot
                .with(|store| store.read(next..bounds.next_index, READ_BYTES));
            for stored in stored.map_err(RaftOpenError::Store)? {
                next = stored.index.saturating_add(1);
                let LogPosition { index, term } = stored.position();
                let entry = from_stored(&stored).map_err(RaftOpenError::Form)?;
                if let EntryPayload::Normal(batch) = entry.payload {
                    let all = batch.commands.into_iter();
                    commands.extend(all.map(|command| Entry {
                        index,
                        term,
                        payload: command.0,
                    }));
                }
            }
        }
        let last = bounds.last.map_or(0, |last| last.term);
        Ok(KeptLog {
            state,
            commands,
            term: self.voted_term.max(last),
        })
    }

    /// Makes the node whose directory this is the only voter, from this state on and in a term after this one. For the
    /// time after a majority was lost for good: should the lost members, which are those that it has met and `others`,
    /// come back with the directories that they had, it hears none of them. They would be a majority again, and take
    /// back what was done since.
    pub fn force_single(
        self,
        addrs: RaftPeerAddrs,
        others: impl IntoIterator<Item = u64>,
        term: u64,
        state: &mut dyn Read,
    ) -> Result<(), RaftOpenError> {
        let node_id = self.node_id;
        let lost = self.met.into_iter().chain(others).filter(|id| *id != node_id);
        // A directory that no server has.
        let lost = lost.map(|id| (id, StoreId::random())).collect();
        let bounds = self.slot.bounds().map_err(RaftOpenError::Store)?;
        let at = LogPosition {
            index: bounds.next_index,
            term,
        };
        let members = Membership::new(
            vec![BTreeSet::from([node_id])],
            BTreeMap::from([(node_id, addrs)]),
        );
        begin(&self.slot, (node_id, &lost), at, term, members, state)
    }
}

/// Makes a new raft directory for a node of a new cluster with these members, whose state is the one that `state`
/// yields. Each member is begun so, from the same bytes and the same `log_term`; the next leader's term is above the
/// `first_term` of a majority.
pub fn seed(
    dir: &Path,
    store: StoreOptions,
    node_id: u64,
    members: BTreeMap<u64, RaftPeerAddrs>,
    begun: SeedTerms,
    state: &mut dyn Read,
) -> Result<(), RaftOpenError> {
    if !members.contains_key(&node_id) {
        return Err(RaftOpenError::NotAmongPeers { node_id });
    }
    let (store, recovery) = SegmentStore::open(dir, store).map_err(RaftOpenError::Store)?;
    if !recovery.created {
        return Err(RaftOpenError::NotEmpty { dir: dir.to_owned() });
    }
    let voters = members.keys().copied().collect();
    let members = Membership::new(vec![voters], members);
    let at = LogPosition {
        index: 1,
        term: begun.log_term,
    };
    begin(
        &StoreSlot::new(store),
        (node_id, &BTreeMap::new()),
        at,
        begun.first_term,
        members,
        state,
    )
}

/// The terms of a new cluster.
#[derive(Clone, Copy, Debug)]
pub struct SeedTerms {
    /// Of the position that the log begins at: above every log that the state may come from.
    pub log_term: u64,
    /// The term that this node has voted in.
    pub first_term: u64,
}

/// Puts the state into the store, where the log then begins. `peers` are the stores that others are known by.
fn begin(
    slot: &StoreSlot,
    (node_id, peers): (u64, &BTreeMap<u64, StoreId>),
    at: LogPosition,
    voted_term: u64,
    members: Membership,
    state: &mut dyn Read,
) -> Result<(), RaftOpenError> {
    let members = StoredMembership::new(Some(log_id(at)), members);
    let writer = slot.with(|store| store.snapshots().create(at));
    let mut writer = writer.map_err(RaftOpenError::Store)?;
    write_preamble(&mut writer, &members).map_err(RaftOpenError::Snapshot)?;
    std::io::copy(state, &mut writer).map_err(RaftOpenError::Snapshot)?;
    let ops = vec![
        vote_op(Vote::new(voted_term, node_id)),
        identity_op(node_id, peers),
    ];
    // The vote first: should this be cut off, it is done again, in a term above it.
    slot.with(|store| {
        store.commit(Batch::new(ops))?;
        store.install(writer)
    })
    .map_err(RaftOpenError::Store)
}
