//! The end of the keeper: what runs goes on, and what has ended for good is cleared away first. The control plane has
//! been told that it is over: whoever ends the daemon upon that finds nothing of it on the host.

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Keeper, RunnerHandle};
use crate::ledger::Ledger;
use crate::limits::{CLEAR_WITHIN, HAPPENINGS_MAX};
use crate::runner::{Happening, Wish};
use dhow_core::ids::ReplicaName;

impl Keeper {
    /// Ends all runners, and waits for those that only have to remove what is over.
    pub(super) async fn end_runners(&mut self, happenings: &mut mpsc::Receiver<Happening>) {
        // Nothing is begun from now on, also in the place of what goes.
        self.assigned.clear();
        let running = self
            .runners
            .iter()
            .filter(|(name, runner)| !self.is_over(name, runner));
        let running: Vec<ReplicaName> = running.map(|(name, _)| name.clone()).collect();
        for name in running {
            if let Some(runner) = self.runners.remove(&name) {
                runner.task.abort();
            }
        }
        let left = self.runners.len();
        if timeout(CLEAR_WITHIN, self.clear(happenings)).await.is_err() {
            tracing::warn!(
                replicas = left,
                "what has ended is not removed yet; the next daemon does it"
            );
        }
        self.abort_runners();
    }

    pub(super) fn abort_runners(&self) {
        for runner in self.runners.values() {
            runner.task.abort();
        }
    }

    /// Until no runner is left.
    async fn clear(&mut self, happenings: &mut mpsc::Receiver<Happening>) {
        let mut news = Vec::new();
        while !self.runners.is_empty() {
            happenings.recv_many(&mut news, HAPPENINGS_MAX).await;
            if let Err(error) = self.take_happenings(std::mem::take(&mut news)).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "that ended replicas are removed is not on disk");
                return;
            }
        }
    }

    /// Whether its runner is to end it, and the ledger says that it has ended.
    fn is_over(&self, name: &ReplicaName, runner: &RunnerHandle) -> bool {
        let known = self.ledger.as_ref().map(Ledger::replicas);
        let tracked = known.and_then(|replicas| replicas.get(name));
        let has_ended = tracked.is_some_and(|tracked| tracked.machine.state.is_ended());
        has_ended && matches!(*runner.wish.borrow(), Wish::Stop)
    }
}
