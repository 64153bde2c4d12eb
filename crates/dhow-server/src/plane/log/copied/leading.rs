//! Beginning an epoch, and writing in it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dhow_core::command::{ClusterCommand, Command};
use dhow_core::ids::{Revision, Term};
use dhow_core::state::State;
use dhow_core::step::step;
use dhow_core::time::ClusterTime;
use dhow_wire::log_form::decode_snapshot;
use futures_util::future::join_all;

use super::copying::CopyFailure;
use super::error::CopyError;
use super::limits::{CLAIM_TIMEOUT_MS, WHOLE_TIMEOUT_MS};
use super::log_state::{CopiedLogState, Proposed, encoded};
use super::message::{Claim, ClaimAnswer, CopyAge};
use super::network::Silent;
use super::stand::Role;
use crate::plane::log::store::{Batch, Entry, LogPosition, Op};
use crate::plane::log::{LogEvent, ProposeError};

/// What a claim came to.
#[derive(Debug)]
pub(super) enum Claimed {
    Leads,
    /// A peer has promised to a higher epoch, or a lower peer is there after all.
    NotNow(String),
}

impl CopiedLogState {
    /// Claims the lead from all peers that are reached, and begins an epoch with the newest copy among them.
    pub(super) async fn claim_lead(self: &Arc<Self>) -> Result<Claimed, CopyError> {
        // Nothing is promised here before the others have: a claim that is refused must not shut the leader out.
        let limit = self.epoch_limit();
        let seen = self.stand().promised.max(self.peers.highest_epoch(limit));
        let epoch = self.rule.after(seen);
        let answers = self.ask_for_lead(epoch).await;
        let mut others = Vec::new();
        for (peer, answer) in answers {
            match answer {
                Ok(ClaimAnswer::Granted(standing)) => others.push((peer, standing)),
                Ok(ClaimAnswer::Promised { epoch }) if epoch > limit => tracing::warn!(
                    peer,
                    epoch,
                    limit,
                    "a peer has promised to an epoch that no cluster can have reached, and is left out: begin it anew with \
                     an empty data directory"
                ),
                Ok(ClaimAnswer::Promised { epoch }) => {
                    self.peers.promised(peer, epoch);
                    return Ok(Claimed::NotNow(format!(
                        "peer {peer} has promised to epoch {epoch}"
                    )));
                }
                Ok(ClaimAnswer::Lower { node }) => {
                    return Ok(Claimed::NotNow(match node == peer {
                        true => format!("peer {peer} is there, and its id is lower"),
                        false => format!("peer {peer} hears peer {node}, whose id is lower"),
                    }));
                }
                Err(error) => tracing::debug!(peer, %error, "a peer was not there for a claim"),
            }
        }
        self.begin(epoch, &others).await
    }

    async fn ask_for_lead(&self, epoch: u64) -> Vec<(u64, Result<ClaimAnswer, Silent>)> {
        let claim = Claim {
            node: self.node,
            epoch,
        };
        let peers = self.peers.others();
        join_all(peers.into_iter().map(|peer| async move {
            let limit = Duration::from_millis(CLAIM_TIMEOUT_MS);
            let asked = tokio::time::timeout(limit, self.network.claim(peer, claim)).await;
            (peer, asked.unwrap_or(Err(Silent("it does not answer".into()))))
        }))
        .await
    }

    async fn begin(self: &Arc<Self>, epoch: u64, others: &[(u64, CopyAge)]) -> Result<Claimed, CopyError> {
        let turn = self.turn.lock().await;
        if self.stand().promised >= epoch {
            return Ok(Claimed::NotNow("another peer has claimed since".into()));
        }
        self.promise(epoch).await?;
        self.become_role(Role::Following { leader: None }).await;
        let own = self.recover().await?;
        let standing = self.standing(&own);
        let newest = others.iter().max_by_key(|(_, standing)| standing.rank());
        let newest = newest.filter(|(_, theirs)| theirs.rank() > standing.rank());
        let mut state = match newest {
            None => own.state,
            Some((peer, _)) => match self.fetch(*peer).await {
                Ok(state) => {
                    self.keep_lost(&state).await?;
                    state
                }
                Err(error) => return Ok(Claimed::NotNow(format!("peer {peer} has a newer copy: {error}"))),
            },
        };
        let all = || others.iter().map(|(_, standing)| standing).chain([&standing]);
        let highest = |value: fn(&CopyAge) -> u64| all().map(value).max().unwrap_or_default();
        // Above everything that any of them has: so a log, a revision and a time only ever go forward.
        let began = ClusterCommand::EpochBegan {
            revision: Revision(highest(|standing| standing.revision)),
            time: ClusterTime(highest(|standing| standing.time_ms)),
        };
        let first = dhow_core::command::Entry {
            term: Term(epoch),
            time: state.time,
            request: None,
            command: Command::Cluster(began),
        };
        if let Err(refused) = step(&mut state, &first, &mut ()) {
            return Ok(Claimed::NotNow(format!(
                "the newest copy does not take it: {refused}"
            )));
        }
        let at = LogPosition {
            index: highest(|standing| standing.index) + 1,
            term: epoch,
        };
        let bytes = encoded(state).await?;
        self.install(at, bytes).await?;
        let reached: Vec<u64> = others.iter().map(|(peer, _)| *peer).collect();
        drop(turn);
        self.spread(epoch, &reached).await;
        let _turn = self.turn.lock().await;
        if self.stand().promised != epoch || self.stand().leaving {
            return Ok(Claimed::NotNow("another peer has claimed since".into()));
        }
        tracing::info!(epoch, peers = ?reached, from = ?newest.map(|(peer, _)| peer), "this peer leads");
        self.become_role(Role::Leading).await;
        self.come_in_line();
        Ok(Claimed::Leads)
    }

    /// The newest copy's state.
    async fn fetch(&self, peer: u64) -> Result<State, Silent> {
        let limit = Duration::from_millis(WHOLE_TIMEOUT_MS);
        let fetched = tokio::time::timeout(limit, self.network.whole(peer)).await;
        let whole = fetched.unwrap_or(Err(Silent("it does not answer".into())))?;
        let read = tokio::task::spawn_blocking(move || decode_snapshot(whole.bytes.as_ref()));
        // A copy that this version cannot read is no reason to end.
        let read = read
            .await
            .map_err(|_| Silent("its copy could not be read".into()))?;
        read.map_err(|error| Silent(format!("its copy could not be read: {error}")))
    }

    /// Sends the beginning of the epoch to those who granted it. Who misses it is brought up to date later.
    async fn spread(self: &Arc<Self>, epoch: u64, peers: &[u64]) {
        let sent = peers
            .iter()
            .map(|peer| async move { (*peer, self.send_whole(*peer, epoch).await) });
        for (peer, sent) in join_all(sent).await {
            self.note(peer, sent).await;
        }
    }

    /// What a failed copy means for the peer, and for this one's lead.
    pub(super) async fn note(&self, peer: u64, copied: Result<(), CopyFailure>) {
        match copied {
            Ok(()) => {}
            Err(CopyFailure::Deposed { epoch }) => {
                tracing::warn!(peer, epoch, "another epoch has begun: this peer leads no more");
                let _turn = self.turn.lock().await;
                if let Err(error) = self.promise(epoch).await {
                    tracing::error!(%error, "a promise cannot be written");
                }
                self.become_role(Role::Following { leader: None }).await;
            }
            Err(CopyFailure::Ahead) => {
                tracing::info!(peer, "a peer's log is longer: the lead is claimed anew");
                let _turn = self.turn.lock().await;
                self.become_role(Role::Following { leader: None }).await;
            }
            Err(CopyFailure::Silent(why)) => {
                tracing::debug!(peer, why, "a peer did not take a copy");
                self.peers.missed_copies(peer);
            }
            Err(CopyFailure::Store(error)) => {
                tracing::error!(peer, %error, "a copy could not be read from the own log");
                self.peers.missed_copies(peer);
            }
        }
    }

    /// Writes proposals, copies them to every peer that is reached, and tells the reducer.
    pub(super) async fn write(self: &Arc<Self>, batch: Vec<Proposed>) {
        let Some(epoch) = self.stand().leads_in() else {
            refuse(batch, &ProposeError::NotLeader { leader: None });
            return;
        };
        let (batch, old): (Vec<_>, Vec<_>) = batch.into_iter().partition(|one| one.epoch == epoch);
        refuse(old, &ProposeError::NotLeader { leader: None });
        if batch.is_empty() {
            return;
        }
        let first = match self.append(epoch, &batch).await {
            Ok(Some(first)) => first,
            Ok(None) => return refuse(batch, &ProposeError::NotLeader { leader: None }),
            Err(CopyError::Store(error)) => return refuse(batch, &ProposeError::Store(error)),
            Err(error) => {
                tracing::error!(%error, "a write failed");
                return refuse(batch, &ProposeError::Unknown);
            }
        };
        let payloads = batch.iter().flat_map(|one| one.entries.iter().cloned());
        let entries: Vec<Entry> = (first..)
            .zip(payloads)
            .map(|(index, payload)| Entry {
                index,
                term: epoch,
                payload,
            })
            .collect();
        let peers = self.peers.copied_to(self.now_ms());
        let copied = peers.into_iter().map(|peer| {
            let entries = entries.clone();
            async move { (peer, self.copy_to(peer, epoch, entries).await) }
        });
        let last = entries.last().map_or(0, |entry| entry.index);
        for (peer, copied) in join_all(copied).await {
            if copied.is_ok() {
                self.peers.has(peer, epoch, last);
            }
            self.note(peer, copied).await;
        }
        if self.stand().leads_in() != Some(epoch) {
            // It may be in the copy that the next leader began from, or not.
            return refuse(batch, &ProposeError::Unknown);
        }
        let mut entries = entries.into_iter();
        for one in batch {
            let entries = entries.by_ref().take(one.entries.len()).collect();
            one.place.send(LogEvent::committed(Some(one.id), entries));
        }
    }

    /// Appends to the own log; none where this peer leads no more.
    async fn append(&self, epoch: u64, batch: &[Proposed]) -> Result<Option<u64>, CopyError> {
        let _turn = self.turn.lock().await;
        if self.stand().leads_in() != Some(epoch) {
            return Ok(None);
        }
        let payloads = batch.iter().flat_map(|one| one.entries.iter());
        let ops = payloads.map(|payload: &Bytes| Op::AppendNext {
            term: epoch,
            payload: payload.clone(),
        });
        let ack = self.commit(Batch::new(ops.collect())).await?;
        Ok(Some(ack.first_index))
    }
}

pub(super) fn refuse(batch: Vec<Proposed>, cause: &ProposeError) {
    for one in batch {
        let (proposal, cause) = (one.id, cause.clone());
        one.place.send(LogEvent::Refused { proposal, cause });
    }
}
