//! Rollouts that are open for this node: it prepares for each, so that what its replicas need is here before their turn
//! comes. Owned by the keeper. What could not be prepared is not named, and so handed again with the next heartbeat.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::spec::ServiceSpec;
use dhow_driver::driver::{Preparation, error_chain};
use tokio::task::JoinHandle;

use crate::drivers::Drivers;
use crate::limits::ROLLOUTS_KNOWN_MAX;
use crate::session::{OpenRollout, RolloutId};

/// The rollouts that the node has prepared for, and the task that prepares for those that came last. The keeper names
/// the former in its reports and hands in the latter.
pub struct Rollouts {
    drivers: Drivers,
    known: Arc<Mutex<VecDeque<RolloutId>>>,
    /// One at a time, so that what is started now is not slowed down by what comes later.
    task: Option<JoinHandle<()>>,
}

impl Rollouts {
    pub fn new(drivers: Drivers) -> Self {
        Self {
            drivers,
            known: Arc::default(),
            task: None,
        }
    }

    /// Those that it has prepared for, the newest first.
    pub fn known(&self) -> Vec<RolloutId> {
        self.lock().iter().rev().cloned().collect()
    }

    /// Begins to prepare, unless it does already: what is still open then is handed again.
    pub fn prepare(&mut self, open: Vec<OpenRollout>) {
        let is_busy = self.task.as_ref().is_some_and(|task| !task.is_finished());
        if open.is_empty() || is_busy {
            return;
        }
        let (drivers, known) = (self.drivers.clone(), Arc::clone(&self.known));
        self.task = Some(tokio::spawn(async move {
            let mut failed: Vec<RolloutId> = Vec::new();
            for rollout in &open {
                for spec in &rollout.specs {
                    if !is_prepared(&drivers, &rollout.id, spec).await {
                        failed.push(rollout.id.clone());
                    }
                }
            }
            for rollout in open.into_iter().map(|rollout| rollout.id) {
                if !failed.contains(&rollout) {
                    learn(&mut known.lock().unwrap_or_else(PoisonError::into_inner), rollout);
                }
            }
        }));
    }

    /// Gives up what is under way: it is begun again by the next daemon.
    pub fn end(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RolloutId>> {
        // Changed by single moves, so a holder that panicked left it whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn is_prepared(drivers: &Drivers, rollout: &RolloutId, spec: &Arc<ServiceSpec>) -> bool {
    let what = Preparation {
        spec: Arc::clone(spec),
    };
    match drivers.of(spec).prepare(&what, &|_| {}).await {
        Ok(_) => true,
        Err(error) => {
            let why = error_chain(&*error.cause);
            tracing::info!(%rollout, why, "what a rollout needs cannot be had yet");
            false
        }
    }
}

/// The newest last; an older revision of the same deployment is over.
fn learn(known: &mut VecDeque<RolloutId>, rollout: RolloutId) {
    known.retain(|other| other.deployment != rollout.deployment);
    known.push_back(rollout);
    if known.len() > ROLLOUTS_KNOWN_MAX {
        known.pop_front();
    }
}
