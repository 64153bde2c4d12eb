//! The balancer itself: holds what the last table asked for and changes only what the next one changes.
//!
//! Called by the control socket of the proxy's process. It knows nothing of the daemon, of files or of other
//! proxies.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use super::backend::{BackendKey, BackendState};
use super::bind::{Socket, why_not};
use super::limits::Limits;
use super::listener::{ListenerContext, RunningListener};
use super::protocol::{Applied, BackendStatus, ListenerStatus, Status};
use super::routes::RouteSet;
use super::table::{self, Table, TableError, Transport};

/// How long connections to a backend that no table names any more are left open.
const REMOVED_GRACE: Duration = Duration::from_secs(30);

pub type ListenerKey = (Transport, SocketAddr);

/// The listeners and backends that the proxy serves. Its control connections apply tables to it and ask for its status.
pub struct Balancer {
    shared: ListenerContext,
    /// Notified whenever a draining backend has become idle.
    idle: Arc<Notify>,
    /// One table after the other.
    inner: tokio::sync::Mutex<BalancerState>,
    backends: Mutex<Backends>,
}

/// The table that counts, and what is bound of it.
struct BalancerState {
    table: Table,
    listeners: BTreeMap<ListenerKey, RunningListener>,
    unbound: BTreeMap<ListenerKey, Unbound>,
    /// Listeners have been given away or closed: nothing is bound any more.
    ended: bool,
}

/// Why a listener is not there.
struct Unbound {
    why: String,
    /// Somebody else has its address.
    taken: bool,
}

#[derive(Default)]
struct Backends {
    named: BTreeMap<BackendKey, Arc<BackendState>>,
    /// No longer named, with something still open.
    leaving: Vec<Arc<BackendState>>,
}

impl Balancer {
    pub fn new(limits: Limits) -> Self {
        let tasks = TaskTracker::new();
        Self {
            shared: ListenerContext { limits, tasks },
            idle: Arc::default(),
            inner: tokio::sync::Mutex::new(BalancerState {
                table: Table::empty(),
                listeners: BTreeMap::new(),
                unbound: BTreeMap::new(),
                ended: false,
            }),
            backends: Mutex::default(),
        }
    }

    /// Carries a table out. Listeners whose descriptors are given are not bound but taken over. What is the
    /// same as before is not touched; a listener that could not be bound is tried again.
    pub async fn apply(
        &self,
        table: Table,
        mut inherited: BTreeMap<ListenerKey, OwnedFd>,
    ) -> Result<Applied, TableError> {
        table.check()?;
        let mut inner = self.inner.lock().await;
        if inner.ended {
            return Ok(inner.applied());
        }
        self.name_backends(&table);
        let wanted: BTreeSet<ListenerKey> = table.listeners.iter().map(key).collect();
        let listeners = std::mem::take(&mut inner.listeners);
        let (kept, removed) = listeners.into_iter().partition(|(key, _)| wanted.contains(key));
        inner.listeners = kept;
        close(removed).await;
        inner.unbound.clear();
        for spec in &table.listeners {
            let inherited = inherited.remove(&key(spec));
            self.apply_listener(&mut inner, spec, inherited).await;
        }
        inner.table = table;
        Ok(inner.applied())
    }

    /// Tries again what could not be bound.
    pub async fn retry_unbound(&self) {
        let mut inner = self.inner.lock().await;
        let unbound = std::mem::take(&mut inner.unbound);
        let specs: Vec<table::Listener> = inner.table.listeners.clone();
        for spec in specs.iter().filter(|spec| unbound.contains_key(&key(spec))) {
            self.apply_listener(&mut inner, spec, None).await;
        }
    }

    async fn apply_listener(
        &self,
        inner: &mut BalancerState,
        spec: &table::Listener,
        inherited: Option<OwnedFd>,
    ) {
        let key = key(spec);
        if let Some(running) = inner.listeners.get_mut(&key) {
            if running.spec == *spec {
                return;
            }
            if running.spec.protocol == spec.protocol {
                running.reroute(spec.clone(), self.route_set(spec));
                return;
            }
            // The same socket goes on under another protocol: no connection is refused.
            let started = self.start(spec, running.socket.clone());
            if let Some(before) = inner.listeners.insert(key, started) {
                before.close().await;
            }
            return;
        }
        let (transport, addr) = key;
        let socket = match inherited {
            Some(descriptor) => Socket::take_over(descriptor, transport),
            None => Socket::bind(addr, transport),
        };
        match socket {
            Ok(socket) => {
                inner.listeners.insert(key, self.start(spec, socket));
            }
            Err(error) => {
                let taken = error.kind() == io::ErrorKind::AddrInUse;
                let why = why_not(addr, &error);
                inner.unbound.insert(key, Unbound { why, taken });
            }
        }
    }

    fn start(&self, spec: &table::Listener, socket: Socket) -> RunningListener {
        RunningListener::start(&self.shared, spec.clone(), socket, self.route_set(spec))
    }

    fn route_set(&self, spec: &table::Listener) -> RouteSet {
        let mut backends = self.backends();
        RouteSet::new(&spec.routes, |backend| {
            backends.state(backend_key(backend), &self.idle)
        })
    }

    /// Makes what the table names known, and lets go of the rest.
    fn name_backends(&self, table: &Table) {
        let mut draining: BTreeMap<BackendKey, bool> = BTreeMap::new();
        let routes = table.listeners.iter().flat_map(|listener| &listener.routes);
        for backend in routes.flat_map(|route| &route.backends) {
            *draining.entry(backend_key(backend)).or_default() |= backend.draining;
        }
        let mut backends = self.backends();
        let named = std::mem::take(&mut backends.named);
        for (key, state) in named {
            if draining.contains_key(&key) {
                backends.named.insert(key, state);
            } else {
                backends.leave(state);
            }
        }
        for (key, draining) in draining {
            let state = backends.state(key, &self.idle);
            if state.is_draining() != draining {
                state.set_draining(draining);
            }
        }
    }

    pub async fn status(&self) -> Status {
        let inner = self.inner.lock().await;
        let listeners = inner
            .applied()
            .listeners
            .into_iter()
            .map(|(addr, bound)| ListenerStatus {
                addr,
                error: bound.err(),
            });
        Status {
            revision: inner.table.revision,
            listeners: listeners.collect(),
            connections_max: self.shared.limits.connections_max,
            backends: self
                .backends()
                .all()
                .map(|state| BackendStatus::of(state))
                .collect(),
        }
    }

    /// Waits until none of these has anything in flight, or until the deadline; gives those that are idle.
    pub async fn wait_drained(&self, ids: &[String], deadline: Instant) -> Vec<String> {
        loop {
            let notified = self.idle.notified();
            tokio::pin!(notified);
            // Listening before looking: what becomes idle in between is not missed.
            notified.as_mut().enable();
            let idle: Vec<String> = {
                let backends = self.backends();
                let is_idle = |id: &&String| {
                    !backends
                        .all()
                        .any(|state| state.id == **id && state.in_flight() > 0)
                };
                ids.iter().filter(is_idle).cloned().collect()
            };
            if idle.len() == ids.len() || timeout_at(deadline, notified).await.is_err() {
                return idle;
            }
        }
    }

    /// The table and the sockets that serve it, for the proxy after this one.
    pub async fn sockets(&self) -> (Table, Vec<(ListenerKey, Socket)>) {
        let inner = self.inner.lock().await;
        let sockets = inner.listeners.iter();
        let sockets = sockets.map(|(key, running)| (*key, running.socket.clone()));
        (inner.table.clone(), sockets.collect())
    }

    /// Accepts nothing more; what is open finishes.
    pub async fn end(&self) {
        let mut inner = self.inner.lock().await;
        inner.ended = true;
        inner.unbound.clear();
        close(std::mem::take(&mut inner.listeners)).await;
        self.shared.tasks.close();
    }

    /// Returns when nothing is open any more, after [`Balancer::end`].
    pub async fn finished(&self) {
        self.shared.tasks.wait().await;
    }

    /// What is done every few seconds: idle connections are let go.
    pub fn sweep(&self) {
        let mut backends = self.backends();
        backends.leaving.retain(|state| state.in_flight() > 0);
        backends.all().for_each(|state| state.pool.sweep());
    }

    fn backends(&self) -> MutexGuard<'_, Backends> {
        // Nothing that runs under the lock leaves the maps half changed.
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BalancerState {
    fn applied(&self) -> Applied {
        let bound = self.listeners.keys().map(|key| (key.1, Ok(())));
        let unbound = self.unbound.iter();
        let unbound = unbound.map(|(key, unbound)| (key.1, Err(unbound.why.clone())));
        let taken = self.unbound.iter().filter(|(_, unbound)| unbound.taken);
        Applied {
            listeners: bound.chain(unbound).collect(),
            taken: taken.map(|(key, _)| *key).collect(),
        }
    }
}

impl Backends {
    fn state(&mut self, key: BackendKey, idle: &Arc<Notify>) -> Arc<BackendState> {
        let made = || Arc::new(BackendState::new(key.clone(), idle.clone()));
        self.named.entry(key.clone()).or_insert_with(made).clone()
    }

    fn leave(&mut self, state: Arc<BackendState>) {
        // Nothing new may reach it, even by a route that was looked up just before.
        state.set_draining(true);
        if state.in_flight() == 0 {
            return;
        }
        self.leaving.push(state.clone());
        tokio::spawn(async move {
            tokio::time::sleep(REMOVED_GRACE).await;
            state.gone.cancel();
        });
    }

    fn all(&self) -> impl Iterator<Item = &Arc<BackendState>> {
        self.named.values().chain(&self.leaving)
    }
}

async fn close(listeners: BTreeMap<ListenerKey, RunningListener>) {
    for listener in listeners.into_values() {
        listener.close().await;
    }
}

fn key(spec: &table::Listener) -> ListenerKey {
    (spec.protocol.transport(), spec.addr)
}

fn backend_key(backend: &table::Backend) -> BackendKey {
    (backend.id.clone(), backend.addr)
}
