//! All backends of a proxy: those that the last table names, and those that it names no more and that still have
//! something open.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::backend::{BackendKey, BackendPlace, BackendState, PlaceKey};
use super::mesh::{Mesh, endpoint_of};
use super::protocol::BackendStatus;
use super::table::{self, Names, Table};

/// How long connections to a backend that no table names any more are left open.
const REMOVED_GRACE: Duration = Duration::from_secs(30);

/// The backends of the running proxy, by replica and place.
pub struct Backends {
    mesh: Arc<Mesh>,
    /// Notified whenever a draining backend has become idle.
    idle: Arc<Notify>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    named: BTreeMap<BackendKey, Arc<BackendState>>,
    /// No longer named, with something still open.
    leaving: Vec<Arc<BackendState>>,
}

impl Backends {
    pub fn new(mesh: Arc<Mesh>) -> Self {
        Self {
            mesh,
            idle: Arc::default(),
            known: Mutex::default(),
        }
    }

    /// Makes what the table names known, and lets go of the rest.
    pub fn name(&self, table: &Table) {
        let named = table.names.as_ref().map(Names::listeners).unwrap_or_default();
        let listeners = table.listeners.iter().chain(&named);
        let mut draining: BTreeMap<BackendKey, bool> = BTreeMap::new();
        for route in listeners.flat_map(|listener| &listener.routes) {
            for backend in &route.backends {
                if let Some(key) = key(endpoint_of(&route.id), backend) {
                    *draining.entry(key).or_default() |= backend.draining;
                }
            }
        }
        let mut known = self.lock();
        for (key, state) in std::mem::take(&mut known.named) {
            if draining.contains_key(&key) {
                known.named.insert(key, state);
            } else {
                known.leave(state);
            }
        }
        for (key, draining) in draining {
            let state = self.find(&mut known, key);
            if state.is_marked_draining() != draining {
                state.set_draining(draining);
            }
        }
    }

    /// The state of a backend of an endpoint; `None` where it is nowhere, which no table says.
    pub fn state(&self, endpoint: &str, backend: &table::Backend) -> Option<Arc<BackendState>> {
        let key = key(endpoint, backend)?;
        Some(self.find(&mut self.lock(), key))
    }

    fn find(&self, known: &mut Known, key: BackendKey) -> Arc<BackendState> {
        if let Some(state) = known.named.get(&key) {
            return Arc::clone(state);
        }
        let (id, place) = key.clone();
        let state = |place| Arc::new(BackendState::new(id, place, Arc::clone(&self.idle)));
        let state = match place {
            PlaceKey::Here(addr) => state(BackendPlace::Here(addr)),
            PlaceKey::There { node, endpoint } => {
                let peer = self.mesh.peer(node);
                let state = state(BackendPlace::There {
                    peer: Arc::clone(&peer),
                    endpoint,
                });
                peer.add_backend(&state);
                state
            }
        };
        known.named.insert(key, Arc::clone(&state));
        state
    }

    pub fn status(&self) -> Vec<BackendStatus> {
        let known = self.lock();
        known.all().map(|state| BackendStatus::of(state)).collect()
    }

    /// Waits until none of these has anything in flight, or until the deadline; gives those that are idle.
    pub async fn wait_drained(&self, ids: &[String], deadline: Instant) -> Vec<String> {
        loop {
            let notified = self.idle.notified();
            tokio::pin!(notified);
            // Listening before looking: what becomes idle in between is not missed.
            notified.as_mut().enable();
            let idle: Vec<String> = {
                let known = self.lock();
                let is_idle =
                    |id: &&String| !known.all().any(|state| state.id == **id && state.in_flight() > 0);
                ids.iter().filter(is_idle).cloned().collect()
            };
            if idle.len() == ids.len() || timeout_at(deadline, notified).await.is_err() {
                return idle;
            }
        }
    }

    /// Lets go of idle connections.
    pub fn sweep(&self) {
        let mut known = self.lock();
        known.leaving.retain(|state| state.in_flight() > 0);
        known.all().for_each(|state| state.pool.sweep());
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing that runs under the lock leaves the maps half changed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn leave(&mut self, state: Arc<BackendState>) {
        // Nothing new may reach it, even by a route that was looked up just before.
        state.set_draining(true);
        if state.in_flight() == 0 {
            return;
        }
        self.leaving.push(Arc::clone(&state));
        tokio::spawn(async move {
            tokio::time::sleep(REMOVED_GRACE).await;
            state.gone.cancel();
        });
    }

    fn all(&self) -> impl Iterator<Item = &Arc<BackendState>> {
        self.named.values().chain(&self.leaving)
    }
}

fn key(endpoint: &str, backend: &table::Backend) -> Option<BackendKey> {
    let here = backend.addr.map(PlaceKey::Here);
    let there = backend.node.map(|node| PlaceKey::There {
        node,
        endpoint: endpoint.to_owned(),
    });
    here.or(there).map(|place| (backend.id.clone(), place))
}
