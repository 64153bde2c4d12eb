//! How far the images of this node's replicas are, for those who watch a deployment. Volatile: it is shown, never
//! acted upon.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::ReplicaName;
use dhow_driver::driver::Progress;
use dhow_wire::door::ReplicaPull;

/// How far each replica that waits for its image has come; clones share one table. Runners write it, and the API shows
/// it through the node's door.
#[derive(Clone, Debug, Default)]
pub struct Pulls {
    states: Arc<Mutex<BTreeMap<ReplicaName, Progress>>>,
}

impl Pulls {
    pub fn set(&self, name: &ReplicaName, progress: Progress) {
        let mut states = self.states();
        match states.get_mut(name) {
            Some(known) => *known = progress,
            None => {
                states.insert(name.clone(), progress);
            }
        }
    }

    pub fn done(&self, name: &ReplicaName) {
        self.states().remove(name);
    }

    pub fn list(&self) -> Vec<ReplicaPull> {
        let states = self.states();
        let pulls = states.iter().map(|(replica, progress)| {
            let (done_bytes, total_bytes) = match *progress {
                Progress::Pulling {
                    done_bytes,
                    total_bytes,
                } => (done_bytes, total_bytes),
                Progress::Resolving | Progress::Unpacking { .. } | Progress::Ready => (0, None),
            };
            ReplicaPull {
                replica: replica.clone(),
                done_bytes,
                total_bytes,
            }
        });
        pulls.collect()
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<ReplicaName, Progress>> {
        // Changed by single inserts and removes, so a holder that panicked left it whole.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
