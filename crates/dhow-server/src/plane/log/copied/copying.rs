//! How the leader gets what it wrote to one peer.

use std::sync::Arc;
use std::time::Duration;

use super::error::CopyError;
use super::limits::{CATCH_UP_BYTES, CATCH_UP_MESSAGES_MAX, CLAIM_TIMEOUT_MS, WHOLE_TIMEOUT_MS};
use super::log_state::CopiedLogState;
use super::message::{Claim, ClaimAnswer, Copies, CopyAnswer};
use crate::plane::log::store::{Entry, StoreError};

/// Why a peer does not have everything.
#[derive(Debug)]
pub(super) enum CopyFailure {
    /// The peer leads, or has promised to one that will: this one leads no more.
    Deposed {
        epoch: u64,
    },
    /// Its log is longer: this one has to claim again.
    Ahead,
    Silent(String),
    Store(CopyError),
}

impl CopiedLogState {
    /// Sends entries of this epoch, and what comes before them where the peer lacks it.
    pub(super) async fn copy_to(
        self: &Arc<Self>,
        peer: u64,
        epoch: u64,
        entries: Vec<Entry>,
    ) -> Result<(), CopyFailure> {
        let copies = Copies {
            node: self.node,
            epoch,
            entries,
        };
        match self.send(peer, copies).await? {
            CopyAnswer::Durable { index } if index < self.last().index => {
                self.bring_up(peer, epoch, index).await
            }
            CopyAnswer::Durable { .. } => Ok(()),
            CopyAnswer::Behind { epoch: theirs, index } if theirs == epoch => {
                self.bring_up(peer, epoch, index).await
            }
            CopyAnswer::Behind { .. } => self.admit(peer, epoch).await,
            CopyAnswer::Promised { epoch } => Err(CopyFailure::Deposed { epoch }),
            CopyAnswer::Ahead { .. } => Err(CopyFailure::Ahead),
        }
    }

    /// Sends a peer what it lacks: the entries where they are there and not many, else everything.
    async fn bring_up(self: &Arc<Self>, peer: u64, epoch: u64, mut index: u64) -> Result<(), CopyFailure> {
        let mut messages = 0;
        while messages < CATCH_UP_MESSAGES_MAX {
            let entries = self.entries_after(index).await?;
            let Some(last) = entries.last().map(|entry| entry.index) else {
                return Ok(());
            };
            if entries.first().is_none_or(|first| first.index != index + 1) {
                break;
            }
            let copies = Copies {
                node: self.node,
                epoch,
                entries,
            };
            match self.send(peer, copies).await? {
                CopyAnswer::Durable { .. } => {}
                CopyAnswer::Behind { .. } => break,
                CopyAnswer::Promised { epoch } => return Err(CopyFailure::Deposed { epoch }),
                CopyAnswer::Ahead { .. } => return Err(CopyFailure::Ahead),
            }
            index = last;
            messages += 1;
        }
        self.send_whole(peer, epoch).await
    }

    /// Takes a peer in that was not there when the epoch began: where what it has is not newer, it is replaced.
    async fn admit(self: &Arc<Self>, peer: u64, epoch: u64) -> Result<(), CopyFailure> {
        let claim = Claim {
            node: self.node,
            epoch,
        };
        let limit = Duration::from_millis(CLAIM_TIMEOUT_MS);
        let asked = tokio::time::timeout(limit, self.network.claim(peer, claim)).await;
        let asked = asked.map_err(|_| CopyFailure::Silent("it does not answer".into()))?;
        let theirs = match asked.map_err(|error| CopyFailure::Silent(error.to_string()))? {
            ClaimAnswer::Granted(standing) => standing,
            ClaimAnswer::Promised { epoch } => return Err(CopyFailure::Deposed { epoch }),
            ClaimAnswer::Lower { node } => {
                return Err(CopyFailure::Silent(format!("it waits for peer {node} to lead")));
            }
        };
        let own = {
            let _turn = self.turn.lock().await;
            let recovered = self.recover().await.map_err(CopyFailure::Store)?;
            self.standing(&recovered)
        };
        if theirs.rank() > own.rank() || theirs.index >= own.index || theirs.revision >= own.revision {
            return Err(CopyFailure::Ahead);
        }
        self.send_whole(peer, epoch).await
    }

    /// Sends everything.
    pub(super) async fn send_whole(self: &Arc<Self>, peer: u64, epoch: u64) -> Result<(), CopyFailure> {
        let whole = {
            let _turn = self.turn.lock().await;
            self.whole(epoch).await.map_err(CopyFailure::Store)?
        };
        tracing::debug!(peer, epoch, index = whole.index, "a peer is sent everything");
        let limit = Duration::from_millis(WHOLE_TIMEOUT_MS);
        let sent = tokio::time::timeout(limit, self.network.put_whole(peer, whole)).await;
        let sent = sent.map_err(|_| CopyFailure::Silent("it takes too long".into()))?;
        match sent.map_err(|error| CopyFailure::Silent(error.to_string()))? {
            CopyAnswer::Durable { .. } => Ok(()),
            CopyAnswer::Promised { epoch } => Err(CopyFailure::Deposed { epoch }),
            CopyAnswer::Ahead { .. } => Err(CopyFailure::Ahead),
            CopyAnswer::Behind { .. } => Err(CopyFailure::Silent("it did not take the whole copy".into())),
        }
    }

    async fn send(&self, peer: u64, copies: Copies) -> Result<CopyAnswer, CopyFailure> {
        let limit = Duration::from_millis(self.timings.copy_timeout_ms);
        let sent = tokio::time::timeout(limit, self.network.copy(peer, copies)).await;
        let sent = sent.map_err(|_| CopyFailure::Silent("it does not answer".into()))?;
        sent.map_err(|error| CopyFailure::Silent(error.to_string()))
    }

    async fn entries_after(&self, index: u64) -> Result<Vec<Entry>, CopyFailure> {
        let (store, from) = (self.store.clone(), index + 1);
        let read = tokio::task::spawn_blocking(move || store.read(from..u64::MAX, CATCH_UP_BYTES));
        let read = read.await.unwrap_or(Err(StoreError::Closed));
        match read {
            Ok(entries) => Ok(entries),
            // What was purged can only be sent as a whole.
            Err(StoreError::Compacted { .. }) => Ok(vec![Entry {
                index: u64::MAX,
                term: 0,
                payload: Default::default(),
            }]),
            Err(error) => Err(CopyFailure::Store(error.into())),
        }
    }
}
