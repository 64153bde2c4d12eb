//! The end of the keeper: what runs goes on, and what has ended for good is cleared away first. The control plane has
//! been told that it is over: whoever ends the daemon upon that finds nothing of it on the host.

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Keeper;
use super::core::CoreInput;
use crate::limits::{CLEAR_WITHIN, HAPPENINGS_MAX};
use crate::wish::Happening;

impl Keeper {
    /// Ends all runners, and waits for those that only have to remove what is over.
    pub(super) async fn end_runners(&mut self, happenings: &mut mpsc::Receiver<Happening>) {
        for name in self.core.end() {
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
            let happened = CoreInput::Happened(std::mem::take(&mut news));
            if let Err(error) = self.take(happened).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "that ended replicas are removed is not on disk");
                return;
            }
        }
    }
}
