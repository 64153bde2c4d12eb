//! Sends entries to the followers while they are still being written here, so that a write waits for the slower of
//! the disks and not for one after the other.
//!
//! The library writes entries to this node's disk before it hands them to the lines to the others. By then they are on
//! their way: a [`super::network::Line`] that is to send what was sent ahead waits for that answer. Nobody counts an
//! entry earlier than before: the library hears of a follower only from its line, and of this node only once its own
//! disk has the entry. What was sent ahead and came to nothing is sent again in the usual way, so that only its success
//! means anything.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::ask::AskError;
use super::blob::Blob;
use super::limits::{APPEND_BYTES, APPEND_TIMEOUT_MS, MAX_AHEAD};
use super::log_state::RaftLogState;
use super::vote_form::VoteForm;
use super::wire::{Answer, AppendForm, At, Question};
use crate::net::peers::Lane;

/// A message with entries whose answer is not there yet.
#[derive(Debug)]
pub struct UnderWay {
    vote: VoteForm,
    previous: Option<At>,
    /// Where its entries end.
    pub last: Option<At>,
    /// Whether the library has not asked for it yet.
    pub is_ahead: bool,
    pub answer: JoinHandle<Result<Answer, AskError>>,
}

impl UnderWay {
    /// Sends entries.
    pub fn send(
        shared: &Arc<RaftLogState>,
        node: u64,
        addr: SocketAddr,
        form: AppendForm,
        is_ahead: bool,
    ) -> Self {
        let (vote, previous) = (form.vote, form.previous);
        let last = form.entries.last().map(|(at, _)| *at);
        let shared = Arc::clone(shared);
        let answer = tokio::spawn(async move {
            let timeout = Duration::from_millis(APPEND_TIMEOUT_MS);
            let question = Question::Append(form);
            shared.ask(node, addr, Lane::Log, question, timeout).await
        });
        Self {
            vote,
            previous,
            last,
            is_ahead,
            answer,
        }
    }

    /// Whether it carries the beginning of what is to be sent.
    pub fn begins(&self, form: &AppendForm, last: Option<At>) -> bool {
        self.vote == form.vote && self.previous == form.previous && self.last <= last
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.answer.abort();
    }
}

/// A follower that has all that this leader knows to be sent.
#[derive(Debug)]
struct Follower {
    addr: SocketAddr,
    /// Of this leader, as the library gave it to the line.
    vote: VoteForm,
    /// The last entry that it has.
    acked: Option<At>,
    /// In their order; at most [`MAX_AHEAD`].
    sent: VecDeque<UnderWay>,
}

/// The entries that are on their way to followers before the library has asked for them. The storage sends them, and
/// the lines to the followers wait for their answers.
#[derive(Debug, Default)]
pub struct Ahead {
    followers: Mutex<BTreeMap<u64, Follower>>,
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Follower>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line has an answer that says that the follower has everything up to there.
    pub fn acked(&self, node: u64, addr: SocketAddr, vote: VoteForm, last: Option<At>) {
        let mut followers = self.lock();
        let follower = followers.entry(node).or_insert_with(|| Follower {
            addr,
            vote,
            acked: None,
            sent: VecDeque::new(),
        });
        if follower.vote != vote || follower.addr != addr {
            follower.sent.clear();
        }
        (follower.addr, follower.vote) = (addr, vote);
        follower.acked = last;
    }

    /// Nothing is sent ahead to a follower that does not answer, lags behind or has no line any more.
    pub fn forget(&self, node: u64) {
        self.lock().remove(&node);
    }

    /// The message that carries these entries ahead, where there is one.
    pub fn take(&self, node: u64, form: &AppendForm, last: Option<At>) -> Option<UnderWay> {
        let mut followers = self.lock();
        let sent = &mut followers.get_mut(&node)?.sent;
        while let Some(first) = sent.pop_front() {
            if first.begins(form, last) {
                return Some(first);
            }
        }
        None
    }

    /// Sends entries that are about to be written here to every follower that has all before them.
    pub fn send(&self, shared: &Arc<RaftLogState>, previous: Option<At>, entries: &[(At, Blob)]) {
        let Some((first, _)) = entries.first() else {
            return;
        };
        let size_bytes: usize = entries.iter().map(|(_, blob)| blob.0.len()).sum();
        for (node, follower) in self.lock().iter_mut() {
            // Entries of another term are another leader's, whom this node follows by now.
            let is_own = follower.vote.term == first.term;
            let newest = follower.sent.back().map_or(follower.acked, |sent| sent.last);
            let has_room = follower.sent.len() < MAX_AHEAD && size_bytes <= APPEND_BYTES;
            if !is_own || newest != previous || !has_room {
                continue;
            }
            let form = AppendForm {
                vote: follower.vote,
                previous,
                // The library tells what is committed as soon as it is.
                committed: None,
                entries: entries.to_vec(),
            };
            let sent = UnderWay::send(shared, *node, follower.addr, form, true);
            follower.sent.push_back(sent);
        }
    }
}
