//! What a peer does with claims and copies of others.

use std::cmp::Ordering;
use std::sync::Arc;

use dhow_core::branches;
use dhow_core::state::State;
use dhow_wire::log_form::decode_snapshot;

use super::error::CopyError;
use super::log_state::{CopiedLogState, unreadable};
use super::message::{Claim, ClaimAnswer, Copies, CopyAnswer, Whole};
use super::stand::Role;
use crate::plane::log::store::{Batch, LogPosition, Op};
use crate::plane::log::{LogEvent, note_higher_term};

impl CopiedLogState {
    /// Another peer wants to lead. It may where it is the lowest that this one hears.
    pub(super) async fn take_claim(self: &Arc<Self>, claim: Claim) -> Result<ClaimAnswer, CopyError> {
        let _turn = self.turn.lock().await;
        let (promised, leaving) = {
            let stand = self.stand();
            (stand.promised, stand.leaving)
        };
        let own = Some(self.node).filter(|_| !leaving);
        let lower = own.into_iter().chain(self.peers.lowest_heard(self.now_ms()));
        if let Some(node) = lower.min().filter(|lower| *lower < claim.node) {
            return Ok(ClaimAnswer::Lower { node });
        }
        if claim.epoch < promised {
            return Ok(ClaimAnswer::Promised { epoch: promised });
        }
        let limit = self.epoch_limit();
        if claim.epoch > limit {
            // It would shut every other leader out for good.
            tracing::warn!(
                peer = claim.node,
                epoch = claim.epoch,
                limit,
                "a peer claims an epoch that no cluster can have reached, and is not followed: look at its clock and its \
                 data directory"
            );
            return Ok(ClaimAnswer::Promised { epoch: promised });
        }
        // The same claim may come again: the numbers of epochs tell who made it.
        if claim.epoch > promised {
            note_higher_term(claim.node, claim.epoch, promised);
            self.promise(claim.epoch).await?;
            // Whoever led in an older epoch leads no more; who leads now is known with the first copy.
            self.become_role(Role::Following { leader: None }).await;
        }
        let recovered = self.recover().await?;
        Ok(ClaimAnswer::Granted(self.standing(&recovered)))
    }

    /// Takes entries that follow on from what is here.
    pub(super) async fn take_copies(self: &Arc<Self>, copies: Copies) -> Result<CopyAnswer, CopyError> {
        let _turn = self.turn.lock().await;
        if let Some(answer) = self.check_epoch(copies.epoch) {
            return Ok(answer);
        }
        let last = self.last();
        let new = copies.entries.into_iter();
        let new: Vec<_> = new.filter(|entry| entry.index > last.index).collect();
        let follows = new.first().is_none_or(|first| first.index == last.index + 1);
        if last.term != copies.epoch || !follows {
            return Ok(CopyAnswer::Behind {
                epoch: last.term,
                index: last.index,
            });
        }
        self.follow(copies.node).await;
        if !new.is_empty() {
            let ops = new.iter().cloned().map(Op::Append).collect();
            self.commit(Batch::new(ops)).await?;
            let _ = self.events.send(LogEvent::committed(None, new)).await;
        }
        self.compare_with_leader(copies.node);
        Ok(CopyAnswer::Durable {
            index: self.last().index,
        })
    }

    /// Takes everything. What this peer has and the leader lacks is kept aside first.
    pub(super) async fn take_whole(self: &Arc<Self>, whole: Whole) -> Result<CopyAnswer, CopyError> {
        let _turn = self.turn.lock().await;
        if let Some(answer) = self.check_epoch(whole.epoch) {
            return Ok(answer);
        }
        let last = self.last();
        if last.term == whole.epoch && last.index >= whole.index {
            self.follow(whole.node).await;
            self.come_in_line();
            return Ok(CopyAnswer::Durable { index: last.index });
        }
        if last.index >= whole.index {
            return Ok(CopyAnswer::Ahead { index: last.index });
        }
        let bytes = whole.bytes.clone();
        let theirs = tokio::task::spawn_blocking(move || decode_snapshot(bytes.as_ref()));
        let theirs = theirs.await.map_err(|_| CopyError::CutOff)?;
        let theirs = theirs.map_err(|error| unreadable(&error))?;
        if last.term != whole.epoch {
            self.keep_lost(&theirs).await?;
        }
        let at = LogPosition {
            index: whole.index,
            term: whole.epoch,
        };
        self.install(at, whole.bytes).await?;
        self.follow(whole.node).await;
        self.come_in_line();
        Ok(CopyAnswer::Durable { index: whole.index })
    }

    /// Keeps what this peer has and `winner` lacks, before it is replaced. Under the turn.
    pub(super) async fn keep_lost(self: &Arc<Self>, winner: &State) -> Result<(), CopyError> {
        let own = self.recover().await?;
        let lost = branches::lost(&own.state, winner);
        if lost.is_empty() {
            return Ok(());
        }
        tracing::warn!(
            revisions = lost.revisions.len(),
            others = lost.others.len(),
            "this half of the divided cluster has lost: what was written here is kept as conflicted"
        );
        let shared = Arc::clone(self);
        let kept = tokio::task::spawn_blocking(move || shared.lost.add(lost));
        let kept = kept.await.map_err(|_| CopyError::CutOff)?;
        kept.map_err(|error| CopyError::Kept(error.to_string()))
    }

    /// Copies are taken in the very epoch that was claimed here: a leader compares what both have before it replaces
    /// anything.
    fn check_epoch(&self, epoch: u64) -> Option<CopyAnswer> {
        let promised = self.stand().promised;
        let last = self.last();
        match epoch.cmp(&promised) {
            Ordering::Less => Some(CopyAnswer::Promised { epoch: promised }),
            Ordering::Equal => None,
            Ordering::Greater => Some(CopyAnswer::Behind {
                epoch: last.term,
                index: last.index,
            }),
        }
    }

    /// Follows whoever leads.
    async fn follow(&self, leader: u64) {
        let leader = Some(leader);
        self.become_role(Role::Following { leader }).await;
    }
}
