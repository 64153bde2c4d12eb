//! Answers what other servers ask this node's raft log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::Snapshot;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};

use super::admission::Admission;
use super::engine::Engine;
use super::entry_form::from_stored;
use super::incoming::Received;
use super::network::{at, id};
use super::options::RaftPeerAddrs;
use super::snapshot_data::{SnapshotData, meta};
use super::types::{RaftEntry, SnapshotMeta, Vote};
use super::vote_form::VoteForm;
use super::wire::{
    Answer, AppendForm, At, Question, Refusal, Reply, SnapshotPart, decode_letter, encode_reply,
};
use crate::net::peers::PeerHandler;
use crate::plane::log::note_higher_term;
use crate::plane::log::store::{Entry, StoreId};

/// Answers the questions of other servers, which the servers' channel hands in. It does not keep the log open.
pub struct RaftPeerHandler {
    pub(super) engine: Arc<Engine>,
}

impl PeerHandler for RaftPeerHandler {
    fn answer(&self, from: u64, question: Bytes) -> BoxFuture<'_, Bytes> {
        Box::pin(self.engine.answer(from, question))
    }
}

impl Engine {
    /// Answers a message. Bytes that are none are refused.
    pub(super) async fn answer(&self, from: u64, question: Bytes) -> Bytes {
        let own = self.shared.known.own();
        let answer = match decode_letter(&question) {
            Err(error) => {
                tracing::warn!(%error, from, "a message of another server cannot be read");
                Answer::Refused(Refusal::Malformed)
            }
            Ok(letter) if letter.to_store.is_some_and(|store| store != *own.as_bytes()) => {
                if let Some(times) = self.shared.mistaken.meet(from, Instant::now()) {
                    tracing::error!(
                        from,
                        times,
                        "messages are for the raft directory that this node had before"
                    );
                }
                Answer::Refused(Refusal::AnotherReceiver)
            }
            Ok(letter) => {
                let store = StoreId::from_bytes(letter.from_store);
                match self.shared.known.check(from, store) {
                    Ok(()) => self.answer_known(from, store, letter.question).await,
                    Err(_) => {
                        self.shared.meet_stranger(from);
                        Answer::Refused(Refusal::AnotherSender)
                    }
                }
            }
        };
        encode_reply(&Reply {
            store: *own.as_bytes(),
            answer,
        })
    }

    async fn answer_known(&self, from: u64, store: StoreId, question: Question) -> Answer {
        if self.shared.storage.is_gone() {
            // What would be written is nowhere after the next start, so that it must not count: no entry, no vote.
            return Answer::Refused(Refusal::Stopped);
        }
        if let Err(error) = self.shared.learn(from, store).await {
            tracing::warn!(%error, from, "the store of a node could not be noted");
            return Answer::Refused(Refusal::Stopped);
        }
        let answered = match question {
            Question::Append(form) => {
                self.note_term(from, form.vote);
                self.append(form).await
            }
            Question::Vote { vote, last } => {
                self.note_term(from, vote);
                self.vote(from, vote, last).await
            }
            Question::PreVote { last } => Some(self.pre_vote(from, last)),
            Question::Hello { first_peers } => self.hello(&first_peers).await,
            Question::Snapshot(part) => self.snapshot_part(from, part).await,
            Question::StandAside { term, favoured } => self.stand_aside(term, favoured).await,
            Question::TakeOver { term } => self.take_over(term).await,
        };
        answered.unwrap_or(Answer::Refused(Refusal::Stopped))
    }

    fn note_term(&self, from: u64, vote: VoteForm) {
        let known = self.raft.metrics().borrow().current_term;
        note_higher_term(from, vote.term, known);
    }

    /// A node that the others do not take back may not help to begin a new cluster either.
    async fn hello(&self, first_peers: &BTreeMap<u64, RaftPeerAddrs>) -> Option<Answer> {
        let has_log = self.raft.is_initialized().await.ok()?;
        let is_refused = matches!(*self.shared.admission.borrow(), Admission::Refused { .. });
        Some(Answer::Hello {
            is_initialized: has_log || is_refused,
            has_same_peers: *first_peers == self.shared.first_peers,
        })
    }

    async fn append(&self, form: AppendForm) -> Option<Answer> {
        let mut entries = Vec::with_capacity(form.entries.len());
        for (place, payload) in form.entries {
            let stored = Entry {
                index: place.index,
                term: place.term,
                payload: payload.0,
            };
            match from_stored(&stored) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    tracing::error!(%error, index = place.index, "an entry of the leader cannot be read");
                    return Some(Answer::Refused(Refusal::Malformed));
                }
            }
        }
        if !follow_each_other(form.previous, &entries) {
            return Some(Answer::Refused(Refusal::Malformed));
        }
        // It speaks now, however long it takes to write down what it says.
        if form.vote.term >= self.raft.metrics().borrow().current_term {
            self.shared.hear();
        }
        let asked = self.raft.append_entries(AppendEntriesRequest {
            vote: form.vote.into_vote(),
            prev_log_id: id(form.previous),
            entries,
            leader_commit: id(form.committed),
        });
        let response = asked.await.ok()?;
        if !matches!(response, AppendEntriesResponse::HigherVote(_)) {
            self.shared.hear();
        }
        Some(match response {
            AppendEntriesResponse::Success => Answer::Appended,
            AppendEntriesResponse::PartialSuccess(up_to) => Answer::AppendedUpTo(at(&up_to)),
            AppendEntriesResponse::Conflict => Answer::Conflict,
            AppendEntriesResponse::HigherVote(vote) => Answer::HigherVote(VoteForm::of(&vote)),
        })
    }

    fn pre_vote(&self, from: u64, last: Option<At>) -> Answer {
        let is_granted = self.would_elect(from, last.map(Into::into));
        if is_granted {
            self.shared.promise(from);
        }
        Answer::PreVoted { is_granted }
    }

    /// The library keeps to a leader that it has followed for as long as it would wait for a vote, which is far longer
    /// than a lease. So a leader whose lease has passed is let go of before.
    async fn vote(&self, from: u64, vote: VoteForm, last: Option<At>) -> Option<Answer> {
        let own = self.own_vote().await?;
        if own.committed {
            if !self.would_vote(last.map(Into::into)) {
                return Some(Answer::Voted {
                    vote: VoteForm::of(&own),
                    last: self.last().map(Into::into),
                    is_granted: false,
                });
            }
            self.hear_of(vote.into_vote()).await?;
        }
        let request = VoteRequest::new(vote.into_vote(), id(last));
        let response = self.raft.vote(request).await.ok()?;
        if response.vote_granted {
            self.shared.promise(from);
        }
        Some(Answer::Voted {
            vote: VoteForm::of(&response.vote),
            last: at(&response.last_log_id),
            is_granted: response.vote_granted,
        })
    }

    async fn snapshot_part(&self, from: u64, part: SnapshotPart) -> Option<Answer> {
        let vote: Vote = part.vote.into_vote();
        let own = self.own_vote().await?;
        if !matches!(vote.partial_cmp(&own), Some(order) if order.is_ge()) {
            return Some(Answer::Snapshot {
                vote: VoteForm::of(&own),
            });
        }
        self.shared.hear();
        let meta = meta(part.at.into(), part.members.clone().into_stored());
        let writer = match self.incoming.take(&self.shared, from, part).await {
            Ok(Received::Whole(writer)) => writer,
            Ok(Received::Part) => {
                return Some(Answer::Snapshot {
                    vote: VoteForm::of(&own),
                });
            }
            Ok(Received::OutOfPlace) => return Some(Answer::SnapshotAgain),
            Err(error) => {
                tracing::error!(%error, "a snapshot of the leader was not taken");
                return Some(Answer::SnapshotAgain);
            }
        };
        let position = writer.position();
        self.shared.installing.send_replace(Some(position));
        let installed = self
            .hand_over_snapshot(vote, meta, SnapshotData::Received(*writer))
            .await;
        self.shared.installing.send_if_modified(|installing| {
            let was_left = *installing == Some(position);
            if was_left {
                *installing = None;
            }
            was_left
        });
        self.shared.hear();
        installed
    }

    pub(super) async fn hand_over_snapshot(
        &self,
        vote: Vote,
        meta: SnapshotMeta,
        data: SnapshotData,
    ) -> Option<Answer> {
        let snapshot = Snapshot {
            meta,
            snapshot: Box::new(data),
        };
        let response = self.raft.install_full_snapshot(vote, snapshot).await.ok()?;
        Some(Answer::Snapshot {
            vote: VoteForm::of(&response.vote),
        })
    }
}

/// Entries that do not follow each other would be taken for a fault of the program, and stop it.
fn follow_each_other(previous: Option<At>, entries: &[RaftEntry]) -> bool {
    let first = previous.map_or(0, |at| at.index.saturating_add(1));
    (first..)
        .zip(entries)
        .all(|(index, entry)| entry.log_id.index == index)
}
