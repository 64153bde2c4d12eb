//! What the raft logs of two servers say to each other: a byte with the version, then the message in postcard. Sizes
//! are bounded by the channel; bytes that are no message are answered with a refusal and never more.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::blob::Blob;
use super::entry_form::{FormError, StoredMembershipForm, decode, encode};
use super::options::RaftPeerAddrs;
use super::vote_form::VoteForm;
use crate::plane::log::store::{LogPosition, StoreId};

/// The version that is spoken.
pub const WIRE_VERSION: u8 = 1;

/// Term and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct At {
    pub term: u64,
    pub index: u64,
}

impl From<LogPosition> for At {
    fn from(LogPosition { index, term }: LogPosition) -> Self {
        Self { term, index }
    }
}

impl From<At> for LogPosition {
    fn from(At { term, index }: At) -> Self {
        Self { index, term }
    }
}

/// A question and who asks whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// The store of the node that asks.
    pub from_store: [u8; StoreId::BYTES],
    /// The store of the node that is asked, where it is known: another one must not answer for it.
    pub to_store: Option<[u8; StoreId::BYTES]>,
    pub question: Question,
}

/// What one server's raft log asks of another's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    Append(AppendForm),
    Vote {
        vote: VoteForm,
        last: Option<At>,
    },
    /// Whether a leader is heard there, and whether this log would be good enough to lead.
    PreVote {
        last: Option<At>,
    },
    /// How it is with the cluster there.
    Hello {
        first_peers: BTreeMap<u64, RaftPeerAddrs>,
    },
    Snapshot(SnapshotPart),
    /// A leader ends its term in favour of this node: it may be elected although the leader was heard just now.
    StandAside {
        term: u64,
        favoured: u64,
    },
    /// The leader of the term before asks this node to be elected now.
    TakeOver {
        term: u64,
    },
}

/// Entries that a leader sends to a follower.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendForm {
    pub vote: VoteForm,
    pub previous: Option<At>,
    pub committed: Option<At>,
    /// Each as it stands on disk.
    pub entries: Vec<(At, Blob)>,
}

/// A stretch of the state in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPart {
    pub vote: VoteForm,
    pub at: At,
    pub members: StoredMembershipForm,
    pub offset: u64,
    pub bytes: Blob,
    pub is_last: bool,
}

/// An answer and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The store of the node that answers.
    pub store: [u8; StoreId::BYTES],
    pub answer: Answer,
}

/// What the other raft log answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Appended,
    AppendedUpTo(Option<At>),
    Conflict,
    HigherVote(VoteForm),
    Voted {
        vote: VoteForm,
        last: Option<At>,
        is_granted: bool,
    },
    PreVoted {
        is_granted: bool,
    },
    Hello {
        is_initialized: bool,
        has_same_peers: bool,
    },
    Snapshot {
        vote: VoteForm,
    },
    /// The parts did not come in order: begin again.
    SnapshotAgain,
    Done,
    /// It is not done, for a reason.
    Refused(Refusal),
}

/// Why a question was not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The one who asks is known with another store.
    AnotherSender,
    /// The one who is asked has another store than was expected.
    AnotherReceiver,
    /// The question cannot be read.
    Malformed,
    /// The log there has stopped.
    Stopped,
}

/// A letter as bytes.
pub fn encode_letter(letter: &Letter) -> Bytes {
    encode(WIRE_VERSION, letter)
}

/// A letter from bytes.
pub fn decode_letter(bytes: &[u8]) -> Result<Letter, FormError> {
    decode("a message of another server", WIRE_VERSION, bytes)
}

/// A reply as bytes.
pub fn encode_reply(reply: &Reply) -> Bytes {
    encode(WIRE_VERSION, reply)
}

/// A reply from bytes.
pub fn decode_reply(bytes: &[u8]) -> Result<Reply, FormError> {
    decode("an answer of another server", WIRE_VERSION, bytes)
}
