//! How an entry of the raft log stands on disk and travels between servers: one byte with the version of the form,
//! then the value in postcard. The consensus library's own form is never written: its next version may differ.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::EntryPayload;
use serde::{Deserialize, Serialize};

use super::blob::Blob;
use super::options::RaftPeerAddrs;
use super::types::{Batch, BatchTag, Membership, RaftEntry, StoredMembership, log_id, position};
use crate::plane::log::store::{Entry, LogPosition};

/// The version that is written.
pub const ENTRY_VERSION: u8 = 1;

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("{what} is empty")]
    Empty { what: &'static str },
    #[error(
        "{what} has version {found}, this program knows up to {known}; start the newer program that wrote it"
    )]
    Version {
        what: &'static str,
        found: u8,
        known: u8,
    },
    #[error("{what} cannot be read")]
    Malformed { what: &'static str },
}

#[derive(Serialize, Deserialize)]
enum EntryForm {
    Blank,
    Membership(MembershipForm),
    Batch {
        node: u64,
        life: u64,
        number: u64,
        commands: Vec<Blob>,
    },
}

/// The members: sets of voters (two while they are being changed) and where everybody is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipForm {
    pub voters: Vec<BTreeSet<u64>>,
    pub nodes: BTreeMap<u64, RaftPeerAddrs>,
}

impl MembershipForm {
    pub fn of(membership: &Membership) -> Self {
        Self {
            voters: membership.get_joint_config().clone(),
            nodes: membership.nodes().map(|(id, node)| (*id, *node)).collect(),
        }
    }

    pub fn into_membership(self) -> Membership {
        Membership::new(self.voters, self.nodes)
    }
}

/// Members together with the entry that made them so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMembershipForm {
    /// Term and index.
    pub at: Option<(u64, u64)>,
    pub members: MembershipForm,
}

impl StoredMembershipForm {
    pub fn of(stored: &StoredMembership) -> Self {
        Self {
            at: stored.log_id().as_ref().map(|id| (id.leader_id.term, id.index)),
            members: MembershipForm::of(stored.membership()),
        }
    }

    pub fn into_stored(self) -> StoredMembership {
        let at = self.at.map(|(term, index)| log_id(LogPosition { index, term }));
        StoredMembership::new(at, self.members.into_membership())
    }
}

/// Writes a value behind the byte of its version.
pub fn encode<T: Serialize>(version: u8, value: &T) -> Bytes {
    // Writing into memory fails for values of unknown length alone, and none of ours has one; nothing at all is
    // refused by every reader.
    postcard::to_extend(value, vec![version]).map_or_else(|_| Bytes::new(), Bytes::from)
}

/// Reads what [`encode`] wrote, all of it.
pub fn decode<'a, T: Deserialize<'a>>(
    what: &'static str,
    version: u8,
    bytes: &'a [u8],
) -> Result<T, FormError> {
    let (found, rest) = bytes.split_first().ok_or(FormError::Empty { what })?;
    if *found != version {
        return Err(FormError::Version {
            what,
            found: *found,
            known: version,
        });
    }
    match postcard::take_from_bytes(rest) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(FormError::Malformed { what }),
    }
}

/// An entry as the store holds it.
pub fn to_stored(entry: RaftEntry) -> Entry {
    let LogPosition { index, term } = position(&entry.log_id);
    let form = match entry.payload {
        EntryPayload::Blank => EntryForm::Blank,
        EntryPayload::Membership(membership) => EntryForm::Membership(MembershipForm::of(&membership)),
        EntryPayload::Normal(Batch { tag, commands }) => EntryForm::Batch {
            node: tag.node,
            life: tag.life,
            number: tag.number,
            commands,
        },
    };
    Entry {
        index,
        term,
        payload: encode(ENTRY_VERSION, &form),
    }
}

/// An entry from the store or from another server.
pub fn from_stored(stored: &Entry) -> Result<RaftEntry, FormError> {
    let payload = match decode("an entry of the raft log", ENTRY_VERSION, &stored.payload)? {
        EntryForm::Blank => EntryPayload::Blank,
        EntryForm::Membership(form) => EntryPayload::Membership(form.into_membership()),
        EntryForm::Batch {
            node,
            life,
            number,
            commands,
        } => EntryPayload::Normal(Batch {
            tag: BatchTag { node, life, number },
            commands,
        }),
    };
    Ok(RaftEntry {
        log_id: log_id(stored.position()),
        payload,
    })
}
