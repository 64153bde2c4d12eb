//! A vote as it stands on disk and travels between servers.

use openraft::LeaderId;
use serde::{Deserialize, Serialize};

use super::types::Vote;

/// The version that is written beside the log.
pub const VOTE_VERSION: u8 = 1;

/// The form of a vote in the store and in messages between servers, apart from the library's own type so that the
/// library may change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteForm {
    pub term: u64,
    pub voted_for: Option<u64>,
    /// Whether a quorum has said yes.
    pub is_granted: bool,
}

impl VoteForm {
    pub fn of(vote: &Vote) -> Self {
        Self {
            term: vote.leader_id.term,
            voted_for: vote.leader_id.voted_for,
            is_granted: vote.committed,
        }
    }

    pub fn into_vote(self) -> Vote {
        Vote {
            leader_id: LeaderId {
                term: self.term,
                voted_for: self.voted_for,
            },
            committed: self.is_granted,
        }
    }
}
