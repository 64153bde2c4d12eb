//! The work for rollouts that are open for this node: it prepares for each, so that what its replicas need is here before
//! their turn comes. What could not be prepared is not named, and so handed again with the next heartbeat.

use std::sync::Arc;

use dhow_core::spec::ServiceSpec;
use dhow_driver::driver::{Preparation, error_chain};

use crate::drivers::Drivers;
use crate::session::{OpenRollout, RolloutId};

/// Prepares for rollouts, one after the other, so that what is started now is not slowed down by what comes later. Gives
/// those of which everything is here.
pub async fn prepare(drivers: Drivers, open: Vec<OpenRollout>) -> Vec<RolloutId> {
    let mut failed: Vec<RolloutId> = Vec::new();
    for rollout in &open {
        for spec in &rollout.specs {
            if !is_prepared(&drivers, &rollout.id, spec).await {
                failed.push(rollout.id.clone());
            }
        }
    }
    let all = open.into_iter().map(|rollout| rollout.id);
    all.filter(|rollout| !failed.contains(rollout)).collect()
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
