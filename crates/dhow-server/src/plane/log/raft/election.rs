//! Decides when this node wants to lead: when it has heard no leader for long enough, and a quorum of the voters has
//! heard none either and finds its log good enough. So a node that was cut off, or flaps, costs no election when it
//! comes back: the consensus library would raise its term again and again, and depose the leader with it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use openraft::ServerState;

use super::engine::Engine;
use super::types::{Membership, StoredMembership};
use super::wire::{Answer, Question};

/// Watches until the log is closed.
pub async fn run(engine: Arc<Engine>) {
    let cancel = engine.shared.cancel.clone();
    tokio::select! {
        () = cancel.cancelled() => {}
        () = watch(&engine) => {}
    }
}

async fn watch(engine: &Engine) {
    let timings = engine.shared.timings;
    loop {
        // Everybody waits a little differently, so that one of them is first. An only voter waits for nobody.
        let patience = match is_only_voter(engine) {
            true => Duration::ZERO,
            false => timings.lease() + timings.spread().mul_f64(rand::random::<f64>()),
        };
        let silence = engine.shared.silence();
        if let Some(rest) = patience.checked_sub(silence).filter(|rest| !rest.is_zero()) {
            tokio::time::sleep(rest).await;
            continue;
        }
        if !engine.shared.storage.is_gone() && may_lead(engine) && is_wanted(engine).await {
            tracing::info!(
                node = engine.shared.node_id,
                "no leader is heard; this node stands for election"
            );
            if engine.raft.trigger().elect().await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(timings.election_min_ms)).await;
        }
        let pause = timings.heartbeat() / 2 + timings.heartbeat().mul_f64(rand::random::<f64>());
        tokio::time::sleep(pause).await;
    }
}

fn is_only_voter(engine: &Engine) -> bool {
    let metrics = engine.raft.metrics();
    let metrics = metrics.borrow();
    metrics.membership_config.voter_ids().eq([engine.shared.node_id])
}

fn may_lead(engine: &Engine) -> bool {
    let metrics = engine.raft.metrics();
    let metrics = metrics.borrow();
    let is_voter = metrics
        .membership_config
        .voter_ids()
        .any(|voter| voter == engine.shared.node_id);
    is_voter && metrics.state != ServerState::Leader
}

/// Whether a quorum of the voters would elect this node.
async fn is_wanted(engine: &Engine) -> bool {
    let effective: StoredMembership =
        StoredMembership::clone(&engine.raft.metrics().borrow().membership_config);
    let mut granted = BTreeSet::from([engine.shared.node_id]);
    if is_quorum(effective.membership(), &granted) {
        return true;
    }
    let last = engine.last();
    if !engine.would_vote(last) {
        return false;
    }
    let question = Question::PreVote {
        last: last.map(Into::into),
    };
    let mut answers: FuturesUnordered<_> = effective
        .nodes()
        .filter(|(id, _)| **id != engine.shared.node_id)
        .map(|(id, _)| {
            let asked = engine.ask(*id, question.clone());
            async move { (*id, asked.await) }
        })
        .collect();
    while let Some((id, answer)) = answers.next().await {
        if let Ok(Answer::PreVoted { is_granted: true }) = answer {
            granted.insert(id);
        }
        if is_quorum(effective.membership(), &granted) {
            return true;
        }
    }
    false
}

/// Whether these are a majority of every set of voters that counts.
pub fn is_quorum(membership: &Membership, nodes: &BTreeSet<u64>) -> bool {
    let sets = membership.get_joint_config();
    !sets.is_empty()
        && sets
            .iter()
            .all(|voters| voters.intersection(nodes).count() * 2 > voters.len())
}
