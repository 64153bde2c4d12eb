//! The end of a replica: drained, asked, made to, and nothing left.

use std::time::Duration;

use dhow_core::replica::{ReplicaEvent, ReplicaState};
use dhow_core::spec::StopSpec;
use dhow_driver::driver::{Exit, StopRequest, StopSignal, error_chain};

use super::{Runner, ended};
use crate::limits::{DRAIN_MAX, LAST_WORDS_LINES, REMOVE_RETRY};
use crate::wish::Happening;

impl Runner {
    /// Ends it, removes it, and tells that it is gone.
    pub(super) async fn end_for_good(&mut self) {
        if let Some(event) = self.core.stop_begins() {
            // Nothing new is sent to it before it is asked to end.
            let drain_max = DRAIN_MAX.min(self.grace().max(Duration::from_secs(1)));
            self.context.balancer.withdraw(self.name(), drain_max).await;
            let machine = self.core.machine();
            let was_failing = machine.failures > 0 || !machine.healthy;
            if was_failing {
                self.keep_last_words().await;
            }
            self.happen(event).await;
        }
        if self.core.machine().state == ReplicaState::Stopping {
            self.finish_stop().await;
        }
        if self.core.machine().state == ReplicaState::Failed {
            self.keep_last_words().await;
        }
        self.unclaim().await;
        self.context.balancer.calls_no_more(self.name()).await;
        self.remove().await;
        self.context.files.remove(self.name()).await;
        self.context.ports.give_back(self.core.ports());
        self.tell(Happening::Gone {
            name: self.name().clone(),
        })
        .await;
    }

    /// Ends what runs of it and tells how it ended.
    pub(super) async fn finish_stop(&mut self) {
        let event = match self.end_workload().await {
            Some(exit) => ended(&exit),
            None => ReplicaEvent::Ended {
                exit: dhow_core::replica::Exit::Unknown,
                oom: false,
            },
        };
        self.happen(event).await;
    }

    /// Asks it to end, and makes it. `None` where nothing of it is there.
    pub(super) async fn end_workload(&mut self) -> Option<Exit> {
        let how = self.stop_request();
        // A workload that takes its time to end needs no work of ours: it holds no place.
        match self.driver.stop(self.name(), how).await {
            // It ended because it was asked to, whatever the kernel had ended in it before.
            Ok(exit) => Some(Exit { oom: false, ..exit }),
            Err(error) => {
                tracing::warn!(replica = %self.name(), why = error_chain(&error), "could not be stopped in order");
                None
            }
        }
    }

    fn stop_request(&self) -> StopRequest {
        let default = StopSpec::default();
        let stop = self.core.spec().map_or(&default, |spec| &spec.stop);
        StopRequest {
            // The spec was checked when it was deployed.
            signal: StopSignal::parse(&stop.signal).unwrap_or(StopSignal::TERM),
            grace: Duration::from_millis(stop.grace.as_millis()),
        }
    }

    fn grace(&self) -> Duration {
        self.stop_request().grace
    }

    /// Until it is done: what cannot be removed now, for example on a full disk, is tried again.
    async fn remove(&mut self) {
        let mut told = false;
        loop {
            let context = std::sync::Arc::clone(&self.context);
            let permit = context.work.acquire().await;
            match self.driver.remove(self.name()).await {
                Ok(()) => return,
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        let why = error_chain(&error);
                        tracing::error!(replica = %self.name(), why, "could not be removed; trying again");
                    }
                }
            }
            drop(permit);
            tokio::time::sleep(REMOVE_RETRY).await;
        }
    }

    async fn keep_last_words(&mut self) {
        let Ok(source) = self.driver.logs(self.name()).await else {
            return;
        };
        if let Ok(lines) = source.tail(LAST_WORDS_LINES).await {
            self.context.last_words.keep(self.name().clone(), lines);
        }
    }
}
