//! The first start: a node without a log asks the members of the first configuration. Where a quorum of them, itself
//! included, is as new as this node and has the same configuration, the one with the lowest id begins the cluster.
//! Where anybody has a log already, or knows one of them from before, this node waits to be contacted or added: a
//! majority that lost its directories must not begin anew beside one that did not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::ask::AskError;
use super::engine::Engine;
use super::limits::FORMATION_INTERVAL_MS;
use super::wire::{Answer, Question};

/// Works until this node has a log, or the log is closed.
pub async fn run(engine: Arc<Engine>) {
    let cancel = engine.shared.cancel.clone();
    tokio::select! {
        () = cancel.cancelled() => {}
        () = form(&engine) => {}
    }
}

async fn form(engine: &Engine) {
    let own = engine.shared.node_id;
    loop {
        match engine.raft.is_initialized().await {
            Ok(false) => {}
            Ok(true) | Err(_) => return,
        }
        let fresh = fresh_peers(engine).await;
        let has_quorum = fresh.len() * 2 > engine.shared.first_peers.len();
        if has_quorum && fresh.first() == Some(&own) {
            tracing::info!(
                node = own,
                "no member has a log yet; this node begins the cluster"
            );
            let members = engine.shared.first_peers.clone();
            if let Err(error) = engine.raft.initialize(members).await {
                tracing::warn!(%error, "the cluster was not begun");
            }
        }
        tokio::time::sleep(Duration::from_millis(FORMATION_INTERVAL_MS)).await;
    }
}

/// The members that have no log and the same configuration, this node among them; nobody, where any has a log.
async fn fresh_peers(engine: &Engine) -> BTreeSet<u64> {
    let shared = &engine.shared;
    let question = Question::Hello {
        first_peers: shared.first_peers.clone(),
    };
    let mut answers: FuturesUnordered<_> = shared
        .first_peers
        .keys()
        .filter(|id| **id != shared.node_id)
        .map(|id| {
            let asked = engine.ask(*id, question.clone());
            async move { (*id, asked.await) }
        })
        .collect();
    let mut fresh = BTreeSet::from([shared.node_id]);
    while let Some((id, answer)) = answers.next().await {
        match answer {
            Ok(Answer::Hello {
                is_initialized: true, ..
            })
            | Err(AskError::NotKnown { .. } | AskError::AnotherStore { .. }) => return BTreeSet::new(),
            Ok(Answer::Hello {
                has_same_peers: true, ..
            }) => {
                fresh.insert(id);
            }
            Ok(Answer::Hello { .. }) => {
                tracing::warn!(
                    node = id,
                    "a member was configured with other peers than this node"
                );
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, node = id, "a member of the first configuration does not answer")
            }
        }
    }
    fresh
}
