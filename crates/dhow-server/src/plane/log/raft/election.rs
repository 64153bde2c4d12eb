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
use super::limits::ELECTION_DOUBLINGS_MAX;
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
    let heartbeat = engine.shared.timings.heartbeat();
    let mut server = engine.raft.server_metrics();
    // How often in a row this node has stood and nobody came to lead.
    let mut in_vain = 0;
    // The term in which it stood last.
    let mut stood = None;
    loop {
        if engine.shared.leadership().leader.is_some() {
            in_vain = 0;
        }
        // Who leads wants nothing until it leads no more.
        if server.borrow().state == ServerState::Leader {
            in_vain = 0;
            if server.changed().await.is_err() {
                return;
            }
            continue;
        }
        // Others than this task begin elections too: a new cluster, and a leader that lets go.
        let standing = standing_in(engine);
        if standing.is_some() && standing != stood {
            stood = outcome(engine, in_vain).await;
            in_vain += 1;
            continue;
        }
        if let Some(rest) = patience(engine) {
            tokio::time::sleep(rest).await;
            continue;
        }
        if !engine.shared.storage.is_gone() && may_lead(engine) && is_wanted(engine).await {
            tracing::info!(
                node = engine.shared.node_id,
                "no leader is heard; this node stands for election"
            );
            engine.shared.promise(engine.shared.node_id);
            if engine.raft.trigger().elect().await.is_err() {
                return;
            }
            stood = outcome(engine, in_vain).await;
            in_vain += 1;
        }
        let pause = heartbeat / 2 + heartbeat.mul_f64(rand::random::<f64>());
        tokio::time::sleep(pause).await;
    }
}

/// The term in which this node stands for election, if it does. An only voter is elected at once.
fn standing_in(engine: &Engine) -> Option<u64> {
    if is_only_voter(engine) {
        return None;
    }
    let metrics = engine.raft.metrics();
    let metrics = metrics.borrow();
    (metrics.state == ServerState::Candidate).then_some(metrics.current_term)
}

/// How long this node leaves it to others to lead. Everybody waits a little differently, so that one of them is first.
/// An only voter waits for nobody.
fn patience(engine: &Engine) -> Option<Duration> {
    if is_only_voter(engine) {
        return None;
    }
    let shared = &engine.shared;
    let chance = shared.timings.spread().mul_f64(rand::random::<f64>());
    let for_leader = (shared.lease() + chance).checked_sub(shared.silence());
    let for_other = shared
        .promised_to_other_than(shared.node_id)
        .map(|rest| rest + chance);
    for_leader.max(for_other).filter(|rest| !rest.is_zero())
}

/// Waits while this node stands: until somebody leads, or the election has had its time. Who gives up too early ends an
/// election that would have come to an end, for ever. So there is time for what this node's own disk takes, and from the
/// second in vain on twice as much each time, for the disks of the others; chance keeps those apart that stand at the
/// same time. Returns the term in which it stood.
async fn outcome(engine: &Engine, in_vain: u32) -> Option<u64> {
    // The answer comes when its own vote is durable, so that it is known by now how long the disk takes.
    let own = engine.own_vote().await?;
    let term = own.leader_id.term;
    let usual = Duration::from_millis(engine.shared.timings.election_min_ms);
    let doublings = in_vain.saturating_sub(1).min(ELECTION_DOUBLINGS_MAX);
    let more = usual * ((1 << doublings) - 1) + engine.shared.election_slack();
    let wait = usual + more + more.mul_f64(rand::random::<f64>());
    let mut leadership = engine.shared.leadership.subscribe();
    let led = leadership.wait_for(|now| now.leader.is_some() && now.term >= term);
    // Either somebody leads, or nobody came to lead in this time.
    let _ = tokio::time::timeout(wait, led).await;
    Some(term)
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
    if !engine.would_elect(engine.shared.node_id, last) {
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
            // Somebody may have come to lead meanwhile, or to stand with this node's word.
            return engine.would_elect(engine.shared.node_id, last);
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
