//! What this node is to run, read off its own copy of the state: whole with each epoch, then what changes in it.
//!
//! The agent's session takes from it. It waits once, after a start, until the copy is in line with whoever leads: what
//! a copy from before says may run on another node by now. It adds what people put on the desk by hand. It never
//! decides what runs, and never asks another node.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dhow_core::assignment::{Assignment, assignment_since};
use dhow_core::ids::{NodeId, Revision, Term};
use dhow_core::state::State;
use tokio::sync::watch;
use tokio::time::Instant;

use super::desk::{ByHand, ScaleDesk};
use crate::plane::runtime::RuntimeView;

/// What it is made with.
pub struct OwnWorkOptions {
    pub node: NodeId,
    pub view: RuntimeView,
    pub desk: ScaleDesk,
    /// The position at which the own log was first in line with the leader's; none before.
    pub in_line: watch::Receiver<Option<u64>>,
    /// How long a request counts that speaks of a service which the cluster has its own mind about.
    pub put_right_after: Duration,
}

/// The source of a static node's own assignments; the node's session takes them from it.
pub struct OwnWork {
    options: OwnWorkOptions,
    told: Mutex<Option<LastTold>>,
}

/// What the agent was told last.
struct LastTold {
    term: Term,
    revision: Revision,
    by_hand: ByHand,
}

impl OwnWork {
    pub fn new(options: OwnWorkOptions) -> Self {
        Self {
            options,
            told: Mutex::new(None),
        }
    }

    /// Waits until there is something newer than `last`, and gives it. May be dropped at any time.
    pub async fn next(&self, last: Option<Revision>) -> Assignment {
        self.come_in_line().await;
        let OwnWorkOptions { view, desk, .. } = &self.options;
        let (mut states, mut desk_changes) = (view.states(), desk.changes());
        loop {
            desk_changes.borrow_and_update();
            let state = states.borrow_and_update().clone();
            if let Some(news) = self.news(&state, last) {
                return news;
            }
            let put_right = desk
                .news_since()
                .map(|since| since + self.options.put_right_after);
            tokio::select! {
                changed = states.changed() => if changed.is_err() { std::future::pending::<()>().await },
                // The desk holds the sender itself.
                _ = desk_changes.changed() => {}
                () = until(put_right) => {
                    desk.put_right(|service| state.service_ids.contains_key(service));
                }
            }
        }
    }

    async fn come_in_line(&self) {
        let mut in_line = self.options.in_line.clone();
        let reached = async {
            let index = in_line
                .wait_for(Option::is_some)
                .await
                .ok()
                .and_then(|index| *index)?;
            self.options.view.state_at(index).await.ok().map(drop)
        };
        if reached.await.is_none() {
            // The log or the reducer has ended, and the daemon ends too.
            std::future::pending::<()>().await;
        }
    }

    fn news(&self, state: &State, last: Option<Revision>) -> Option<Assignment> {
        if !state.branch.has_begun_in(state.term) {
            // The copy that an epoch begins with may be of an older one until its first entry says so.
            return None;
        }
        let by_hand = self
            .options
            .desk
            .by_hand(|service| state.service_ids.contains_key(service));
        let mut told = self.told();
        let follows = told.as_ref().is_some_and(|told| {
            Some(told.revision) == last && told.term == state.term && told.by_hand == by_hand
        });
        let mut news = assignment_since(state, self.options.node, last.filter(|_| follows))?;
        match news.whole {
            true => {
                news.services.extend(by_hand.clone());
                news.services.retain(|_, roles| !roles.is_empty());
            }
            false => news.services.retain(|service, _| !by_hand.contains_key(service)),
        }
        *told = Some(LastTold {
            term: state.term,
            revision: news.revision,
            by_hand,
        });
        Some(news)
    }

    fn told(&self) -> MutexGuard<'_, Option<LastTold>> {
        // Replaced as a whole.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
