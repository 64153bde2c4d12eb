//! Which store each node id belongs to, remembered from the first contact on and kept beside the log. A node that
//! lost its directory has a new store, and is not taken for the member that it was.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::entry_form::{FormError, decode, encode};
use super::limits::MAX_KNOWN_PEERS;
use super::store_slot::StoreSlot;
use crate::plane::log::store::{MetaKey, Op, StoreError, StoreId};

const IDENTITY_VERSION: u8 = 1;

/// What is kept under [`MetaKey::Identity`].
#[derive(Serialize, Deserialize)]
struct IdentityForm {
    node_id: u64,
    peers: BTreeMap<u64, [u8; StoreId::BYTES]>,
}

/// The store that belongs to each server's id, as this server has met it. A raft log refuses messages of a server that
/// comes with another store.
#[derive(Debug)]
pub struct KnownPeers {
    node_id: u64,
    own: StoreId,
    store: StoreSlot,
    peers: Mutex<BTreeMap<u64, StoreId>>,
}

/// Another store than the one that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnotherStore;

/// Whose directory it is, and the stores of the others.
pub type Identity = (u64, BTreeMap<u64, StoreId>);

/// Reads whose directory this is; none for a new one.
pub fn read_identity(store: &StoreSlot) -> Result<Option<Identity>, IdentityError> {
    let found = store.meta(MetaKey::Identity).map_err(IdentityError::Store)?;
    let Some(bytes) = found.filter(|bytes| !bytes.is_empty()) else {
        return Ok(None);
    };
    let form: IdentityForm =
        decode("the identity of the node", IDENTITY_VERSION, &bytes).map_err(IdentityError::Form)?;
    let peers = form
        .peers
        .into_iter()
        .map(|(id, store)| (id, StoreId::from_bytes(store)));
    Ok(Some((form.node_id, peers.collect())))
}

/// The step that writes whose directory this is.
pub fn identity_op(node_id: u64, peers: &BTreeMap<u64, StoreId>) -> Op {
    let form = IdentityForm {
        node_id,
        peers: peers.iter().map(|(id, store)| (*id, *store.as_bytes())).collect(),
    };
    Op::Meta {
        key: MetaKey::Identity,
        value: encode(IDENTITY_VERSION, &form),
    }
}

/// Why the identity of a raft directory could not be read.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("the identity of the node cannot be read")]
    Store(#[source] StoreError),
    #[error("the identity of the node cannot be read")]
    Form(#[source] FormError),
}

impl KnownPeers {
    pub fn new(node_id: u64, own: StoreId, store: StoreSlot, peers: BTreeMap<u64, StoreId>) -> Self {
        Self {
            node_id,
            own,
            store,
            peers: Mutex::new(peers),
        }
    }

    /// This node's own store.
    pub fn own(&self) -> StoreId {
        self.own
    }

    /// The store of a node, where one is known.
    pub fn of(&self, node: u64) -> Option<StoreId> {
        self.lock().get(&node).copied()
    }

    /// Whether a node is the one that is known, or is not known. Nothing is remembered.
    pub fn check(&self, node: u64, store: StoreId) -> Result<(), AnotherStore> {
        match self.of(node) {
            Some(known) if known != store => Err(AnotherStore),
            Some(_) | None => Ok(()),
        }
    }

    /// Remembers the store of a node from now on, durably.
    pub async fn learn(&self, node: u64, store: StoreId) -> Result<(), StoreError> {
        let op = {
            let mut peers = self.lock();
            if peers.contains_key(&node) || peers.len() >= MAX_KNOWN_PEERS || node == self.node_id {
                return Ok(());
            }
            peers.insert(node, store);
            identity_op(self.node_id, &peers)
        };
        self.store.commit(vec![op]).await
    }

    /// Forgets nodes that are no members any more: who comes under their ids from now on is somebody else.
    pub async fn forget(&self, nodes: impl IntoIterator<Item = u64>) -> Result<(), StoreError> {
        let op = {
            let mut peers = self.lock();
            let count = nodes
                .into_iter()
                .filter(|node| peers.remove(node).is_some())
                .count();
            if count == 0 {
                return Ok(());
            }
            identity_op(self.node_id, &peers)
        };
        self.store.commit(vec![op]).await
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, StoreId>> {
        // Every change is one call on a map.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
