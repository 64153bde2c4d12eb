//! The task of a copied log: asks the peers how they are, claims the lead when it is this peer's, and writes while it
//! leads. One per log; the daemon runs it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::leading::{Claimed, refuse};
use super::limits::{BATCH_BYTES_MAX, BATCH_PROPOSALS_MAX, CLAIM_PAUSE_MS};
use super::log_state::{CopiedLogState, Proposed};
use super::stand::Role;
use crate::plane::log::ProposeError;

/// The task of one peer's copied log: it decides when to claim the lead and writes the reducer's proposals while it
/// leads.
pub struct CopiedLogTask {
    shared: Arc<CopiedLogState>,
    proposals: mpsc::Receiver<Proposed>,
    /// One that did not fit into the last batch.
    next: Option<Proposed>,
    /// No claim before this.
    claim_after_ms: u64,
    /// The last reason why this peer did not get the lead, so that the log has each once.
    told: Option<String>,
}

impl CopiedLogTask {
    pub(super) fn new(shared: Arc<CopiedLogState>, proposals: mpsc::Receiver<Proposed>) -> Self {
        Self {
            shared,
            proposals,
            next: None,
            claim_after_ms: 0,
            told: None,
        }
    }

    /// Runs until `end`.
    pub async fn run(mut self, end: CancellationToken) {
        let asking = TaskTracker::new();
        for peer in self.shared.peers.others() {
            let (shared, end) = (Arc::clone(&self.shared), end.clone());
            asking.spawn(async move {
                tokio::select! {
                    () = end.cancelled() => {}
                    () = ask(&shared, peer) => {}
                }
            });
        }
        asking.close();
        tokio::select! {
            () = end.cancelled() => {}
            () = self.keep() => {}
        }
        asking.wait().await;
    }

    async fn keep(&mut self) {
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.borrow_and_update();
            self.look().await;
            let leads = self.shared.stand().leads_in().is_some();
            let pause = self.shared.clock.sleep_until_monotonic(self.wake_ms());
            let has_more = self.next.is_some();
            tokio::select! {
                biased;
                // What did not fit into the last batch waits no longer.
                () = std::future::ready(()), if has_more => {}
                taken = self.proposals.recv() => match taken {
                    Some(one) => self.next = Some(one),
                    // Every handle has gone.
                    None => return,
                },
                _ = changes.changed() => {}
                () = pause => {}
            }
            if self.next.is_some() {
                let batch = self.batch();
                match leads {
                    true => self.shared.write(batch).await,
                    false => refuse(batch, &ProposeError::NotLeader { leader: None }),
                }
            }
        }
    }

    fn wake_ms(&self) -> u64 {
        let pause_ms = self.shared.timings.heartbeat_ms.clamp(10, 500);
        self.shared.now_ms().saturating_add(pause_ms)
    }

    /// What waits, as far as it fits into one write.
    fn batch(&mut self) -> Vec<Proposed> {
        let mut batch: Vec<Proposed> = self.next.take().into_iter().collect();
        let size = |one: &Proposed| one.entries.iter().map(|entry| entry.len() + 32).sum::<usize>();
        let mut bytes: usize = batch.iter().map(size).sum();
        while batch.len() < BATCH_PROPOSALS_MAX
            && let Ok(one) = self.proposals.try_recv()
        {
            bytes += size(&one);
            if bytes > BATCH_BYTES_MAX {
                self.next = Some(one);
                break;
            }
            batch.push(one);
        }
        batch
    }

    /// Looks who should lead: claims the lead where it is this peer's, and gives it up where it is another's.
    async fn look(&mut self) {
        let now_ms = self.shared.now_ms();
        let (role, leaving) = {
            let stand = self.shared.stand();
            (stand.role, stand.leaving)
        };
        let lowest = self.shared.peers.lowest(now_ms, leaving);
        match role {
            Role::Leading => self.bring_up().await,
            Role::Following { leader } => {
                if lowest == Some(self.shared.node) && self.shared.peers.were_all_asked() {
                    if now_ms >= self.claim_after_ms {
                        self.claim().await;
                    }
                } else if leader.is_some() && leader != lowest {
                    // Whoever led has gone silent, or a lower one is there again and will claim.
                    self.lose_leader(leader).await;
                }
            }
        }
    }

    /// Forgets a leader that is no longer there; one that still leads is kept until the next one claims.
    async fn lose_leader(&self, leader: Option<u64>) {
        let is_there = self
            .shared
            .peers
            .list(self.shared.now_ms())
            .into_iter()
            .any(|peer| {
                Some(peer.node) == leader && peer.is_reachable && peer.beat.is_some_and(|beat| beat.leads)
            });
        if !is_there {
            let _turn = self.shared.turn.lock().await;
            self.shared.become_role(Role::Following { leader: None }).await;
        }
    }

    async fn claim(&mut self) {
        let claimed = self.shared.claim_lead().await;
        self.claim_after_ms = self.shared.now_ms().saturating_add(CLAIM_PAUSE_MS);
        match claimed {
            Ok(Claimed::Leads) => self.told = None,
            Ok(Claimed::NotNow(why)) => {
                if self.told.as_ref() != Some(&why) {
                    tracing::info!(why, "the lead was not given");
                    self.told = Some(why);
                }
            }
            Err(error) => {
                let why = error.to_string();
                if self.told.as_ref() != Some(&why) {
                    tracing::error!(why, "the lead could not be claimed");
                    self.told = Some(why);
                }
                self.shared.end_where_fatal(&error).await;
            }
        }
    }

    /// Sends peers that are there and lack something what they lack.
    async fn bring_up(&self) {
        let Some(epoch) = self.shared.stand().leads_in() else {
            return;
        };
        let (last, now_ms) = (self.shared.last(), self.shared.now_ms());
        let copied = self.shared.peers.copied_to(now_ms);
        let behind = self.shared.peers.list(now_ms).into_iter().filter(|peer| {
            let lacks = |beat: super::PeerBeat| beat.epoch != epoch || beat.index < last.index;
            peer.beat.is_some_and(lacks) && copied.contains(&peer.node)
        });
        let shared = &self.shared;
        let sent = behind.map(|peer| async move {
            let sent = shared.copy_to(peer.node, epoch, Vec::new()).await;
            if sent.is_ok() {
                // The next heartbeat tells better; until then it is not sent again.
                shared.peers.has(peer.node, epoch, last.index);
            }
            (peer.node, sent)
        });
        for (peer, sent) in join_all(sent).await {
            shared.note(peer, sent).await;
        }
    }
}

/// Asks one peer again and again.
async fn ask(shared: &CopiedLogState, peer: u64) {
    let every_ms = shared.timings.heartbeat_ms.max(1);
    let limit = Duration::from_millis(every_ms.clamp(500, 5_000));
    loop {
        let begun_ms = shared.now_ms();
        let answered = tokio::time::timeout(limit, shared.network.beat(peer)).await;
        match answered {
            Ok(Ok(beat)) => {
                shared.peers.heard(peer, shared.now_ms(), beat);
                shared.meet(peer, beat).await;
            }
            Ok(Err(_)) | Err(_) => shared.peers.silent(peer, begun_ms),
        }
        shared.news();
        shared
            .clock
            .sleep_until_monotonic(begun_ms.saturating_add(every_ms))
            .await;
    }
}

impl CopiedLogState {
    /// What another peer says of itself: the leader of an epoch that this one has a copy of is followed.
    async fn meet(&self, peer: u64, beat: super::PeerBeat) {
        let is_known = {
            let stand = self.stand();
            let follows = matches!(stand.role, Role::Following { leader } if leader != Some(peer));
            follows && beat.leads && beat.promised == stand.promised && self.last().term == beat.epoch
        };
        if is_known {
            let _turn = self.turn.lock().await;
            self.become_role(Role::Following { leader: Some(peer) }).await;
        }
        self.compare_with_leader(peer);
    }
}
