//! What is done to a raft directory while no log is open in it: a survivor goes on alone, or a new cluster begins
//! from a snapshot of the state. Both block.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use openraft::EntryPayload;

use super::entry_form::{decode, encode, to_stored};
use super::error::RaftOpenError;
use super::known_peers::{identity_op, read_identity};
use super::options::RaftPeerAddrs;
use super::snapshot_data::write_preamble;
use super::store_slot::StoreSlot;
use super::types::{Membership, RaftEntry, StoredMembership, Vote, log_id};
use super::vote_form::{VOTE_VERSION, VoteForm};
use crate::log::store::{Batch, LogPosition, MetaKey, Op, SegmentStore, StoreOptions};

/// Where a log that was begun from a snapshot starts: every member is begun from the same one.
const SEEDED_AT: LogPosition = LogPosition { index: 1, term: 1 };

fn vote_op(vote: Vote) -> Op {
    Op::Meta {
        key: MetaKey::Vote,
        value: encode(VOTE_VERSION, &VoteForm::of(&vote)),
    }
}

/// Makes the node whose directory this is the only voter. For the time after a majority was lost for good: all that
/// stands in its log counts as committed from now on, also what no majority had. The lost members must never come
/// back with the directories that they had.
pub fn force_single(
    dir: &Path,
    store: StoreOptions,
    node_id: u64,
    addrs: RaftPeerAddrs,
) -> Result<(), RaftOpenError> {
    let (store, _) = SegmentStore::open(dir, store).map_err(RaftOpenError::Store)?;
    let slot = StoreSlot::new(store);
    match read_identity(&slot)? {
        Some((found, _)) if found != node_id => {
            let (dir, wanted) = (dir.to_owned(), node_id);
            return Err(RaftOpenError::AnotherNode { dir, found, wanted });
        }
        Some(_) => {}
        None => return Err(RaftOpenError::Empty { dir: dir.to_owned() }),
    }
    let bounds = slot.bounds().map_err(RaftOpenError::Store)?;
    let Some(last) = bounds.last else {
        return Err(RaftOpenError::Empty { dir: dir.to_owned() });
    };
    let vote = slot.meta(MetaKey::Vote).map_err(RaftOpenError::Store)?;
    let voted_term = match vote.filter(|bytes| !bytes.is_empty()) {
        Some(bytes) => {
            let form: VoteForm = decode("the vote", VOTE_VERSION, &bytes).map_err(RaftOpenError::Form)?;
            form.term
        }
        None => 0,
    };
    let term = voted_term.max(last.term).saturating_add(1);
    let members = Membership::new(
        vec![BTreeSet::from([node_id])],
        BTreeMap::from([(node_id, addrs)]),
    );
    let entry = to_stored(RaftEntry {
        log_id: log_id(LogPosition {
            index: bounds.next_index,
            term,
        }),
        payload: EntryPayload::Membership(members),
    });
    let ops = vec![
        Op::Append(entry),
        vote_op(Vote::new(term, node_id)),
        identity_op(node_id, &BTreeMap::new()),
    ];
    slot.with(|store| store.commit(Batch::new(ops)))
        .map(drop)
        .map_err(RaftOpenError::Store)
}

/// Makes a new raft directory for a node of a new cluster with these members, whose state is the one that `state`
/// yields. Each member is begun so, from the same bytes.
pub fn seed(
    dir: &Path,
    store: StoreOptions,
    node_id: u64,
    members: BTreeMap<u64, RaftPeerAddrs>,
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
    let members = StoredMembership::new(Some(log_id(SEEDED_AT)), Membership::new(vec![voters], members));
    let mut writer = store
        .snapshots()
        .create(SEEDED_AT)
        .map_err(RaftOpenError::Store)?;
    write_preamble(&mut writer, &members).map_err(RaftOpenError::Snapshot)?;
    std::io::copy(state, &mut writer).map_err(RaftOpenError::Snapshot)?;
    let ops = vec![
        vote_op(Vote::new(SEEDED_AT.term, node_id)),
        identity_op(node_id, &BTreeMap::new()),
    ];
    store.commit(Batch::new(ops)).map_err(RaftOpenError::Store)?;
    store.install(writer).map_err(RaftOpenError::Store)
}
