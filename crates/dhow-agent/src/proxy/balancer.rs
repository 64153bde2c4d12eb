//! The balancer itself: holds what the last table asked for and changes only what the next one changes.
//!
//! Called by the control socket of the proxy's process. It knows nothing of the daemon, of files or of other
//! proxies.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::usage::{EndpointFigures, RelayFigures};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access_log::AccessLog;
use super::backends::Backends;
use super::bind::{Socket, why_not};
use super::dns::NameServer;
use super::judge::{Judge, Side};
use super::kept_sockets::{KeptSockets, StoreConnection};
use super::limits::Limits;
use super::listener::{ListenerContext, QuietListener, RunningListener};
use super::mesh::{IdentityError, Mesh, MeshIdentity, Targets, Timing, endpoint_of};
use super::meters::Meters;
use super::protocol::{Applied, ListenerStatus, Status};
use super::routes::RouteSet;
use super::service_sockets::{NamespaceId, ServiceSockets};
use super::table::{self, Table, TableError, Transport, WantedService};
use super::tls::{GivenCertificates, RefusedCertificate};

/// How long a listener of TCP is open while nobody is ready behind it: a replica that is just being replaced is back by
/// then. After that connections are refused, which is the truth.
pub const UNREADY_MAX: Duration = Duration::from_secs(5);

/// Which socket of which network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerKey {
    pub side: Side,
    pub transport: Transport,
    pub addr: SocketAddr,
}

/// The listeners and backends that the proxy serves. Its control connections apply tables to it and ask for its status.
pub struct Balancer {
    shared: ListenerContext,
    /// Makes the sockets of service addresses, where the proxy has a network of its own.
    services: Option<ServiceSockets>,
    names: NameServer,
    /// One table after the other.
    inner: tokio::sync::Mutex<BalancerState>,
    backends: Backends,
    meters: Meters,
    pub(super) mesh: Arc<Mesh>,
    /// Has what is listened on held beside this process.
    pub(super) kept: KeptSockets,
}

/// The table that counts, and what is bound of it.
struct BalancerState {
    table: Table,
    listeners: BTreeMap<ListenerKey, RunningListener>,
    /// Those behind which nobody is ready.
    quiet: BTreeMap<ListenerKey, QuietListener>,
    unbound: BTreeMap<ListenerKey, Unbound>,
    /// Where other nodes call.
    mesh: Option<MeshListener>,
    /// Listeners have been given away or closed: nothing is bound any more.
    ended: bool,
}

/// The listener of the mesh.
struct MeshListener {
    addr: SocketAddr,
    socket: Socket,
    stop: CancellationToken,
}

/// Why a listener is not there.
struct Unbound {
    why: String,
    /// Somebody else has its address.
    taken: bool,
}

impl Balancer {
    /// `owner` is the user whose calls from this host are let through.
    pub fn new(limits: Limits, owner: u32, services: Option<ServiceSockets>) -> Self {
        Self::with_timing(limits, owner, services, Timing::default())
    }

    /// With another rhythm of the signs of life between nodes.
    pub fn with_timing(limits: Limits, owner: u32, services: Option<ServiceSockets>, timing: Timing) -> Self {
        let (tasks, meters) = (TaskTracker::new(), Meters::default());
        let judge = Arc::new(Judge::new(owner));
        let mesh = Arc::new(Mesh::new(limits.clone(), tasks.clone(), timing));
        Self {
            names: NameServer::new(tasks.clone(), Arc::clone(&meters.wants)),
            shared: ListenerContext {
                limits,
                tasks,
                judge,
                certificates: Arc::default(),
                access_log: AccessLog::default(),
            },
            kept: KeptSockets::new(services.as_ref().map(ServiceSockets::id)),
            services,
            inner: tokio::sync::Mutex::new(BalancerState {
                table: Table::empty(),
                listeners: BTreeMap::new(),
                quiet: BTreeMap::new(),
                unbound: BTreeMap::new(),
                mesh: None,
                ended: false,
            }),
            backends: Backends::new(Arc::clone(&mesh)),
            meters,
            mesh,
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
        self.backends.name(&table);
        // Who calls is known before anything is listened on for them.
        self.shared.judge.learn(&table);
        let targets = Targets::new(&table, |endpoint, backend| self.backends.state(endpoint, backend));
        self.mesh.update(table.mesh.as_ref(), targets);
        let specs = specs(&table);
        let wanted: BTreeSet<ListenerKey> = specs.iter().map(key).collect();
        let listeners = std::mem::take(&mut inner.listeners);
        let (kept, removed): (BTreeMap<_, _>, BTreeMap<_, _>) =
            listeners.into_iter().partition(|(key, _)| wanted.contains(key));
        inner.listeners = kept;
        let quiet = inner.quiet.extract_if(.., |key, _| !wanted.contains(key));
        let quiet: Vec<ListenerKey> = quiet.map(|(key, _)| key).collect();
        let gone: Vec<ListenerKey> = quiet.into_iter().chain(removed.keys().copied()).collect();
        let routes = specs.iter().flat_map(|(_, spec)| &spec.routes);
        self.meters
            .retain(&routes.map(|route| route.id.as_str()).collect());
        close(removed).await;
        // One that comes may have the address of one that goes.
        self.kept.let_go(&gone).await;
        inner.unbound.clear();
        for spec in &specs {
            let inherited = inherited.remove(&key(spec));
            self.apply_listener(&mut inner, spec, inherited).await;
        }
        let mesh = table.mesh.as_ref().map(|mesh| mesh_key(mesh.listen));
        let of_mesh = mesh.and_then(|key| inherited.remove(&key));
        self.apply_mesh(&mut inner, mesh, of_mesh).await;
        self.apply_names(&mut inner, &table, inherited).await;
        inner.table = table;
        self.kept.hold(&self.sockets_of(&inner)).await;
        Ok(inner.applied())
    }

    /// Tries again what could not be bound.
    pub async fn retry_unbound(&self) {
        let mut inner = self.inner.lock().await;
        let unbound = std::mem::take(&mut inner.unbound);
        if unbound.is_empty() {
            return;
        }
        let specs = specs(&inner.table);
        for spec in specs.iter().filter(|spec| unbound.contains_key(&key(spec))) {
            self.apply_listener(&mut inner, spec, None).await;
        }
        let mesh = inner.table.mesh.as_ref().map(|mesh| mesh_key(mesh.listen));
        if mesh.is_some_and(|key| unbound.contains_key(&key)) {
            self.apply_mesh(&mut inner, mesh, None).await;
        }
        let table = inner.table.clone();
        self.apply_names(&mut inner, &table, BTreeMap::new()).await;
        self.kept.hold(&self.sockets_of(&inner)).await;
    }

    /// Refuses connections where nobody has been ready to take them for [`UNREADY_MAX`].
    pub async fn quieten_unready(&self) {
        let mut inner = self.inner.lock().await;
        let is_due = |_: &ListenerKey, running: &mut RunningListener| {
            running
                .unready
                .is_some_and(|since| since.elapsed() >= UNREADY_MAX)
        };
        let due: Vec<_> = inner.listeners.extract_if(.., is_due).collect();
        for (key, running) in due {
            let quiet = running.quieten().await;
            inner.quiet.insert(key, quiet);
        }
    }

    /// Listens for other nodes where the table says, and nowhere else.
    async fn apply_mesh(
        &self,
        inner: &mut BalancerState,
        wanted: Option<ListenerKey>,
        inherited: Option<OwnedFd>,
    ) {
        if inner.mesh.as_ref().map(|mesh| mesh_key(mesh.addr)) == wanted {
            return;
        }
        if let Some(before) = inner.mesh.take() {
            before.stop.cancel();
            self.kept.let_go(&[mesh_key(before.addr)]).await;
        }
        let Some(key) = wanted else { return };
        match self.socket(key, inherited).await {
            Ok(socket) => {
                let (addr, stop) = (key.addr, CancellationToken::new());
                if let Socket::Stream(listener) = &socket {
                    self.mesh.serve(Arc::clone(listener), stop.clone());
                }
                inner.mesh = Some(MeshListener { addr, socket, stop });
            }
            Err(error) => inner.unbound_with(key, &error),
        }
    }

    /// Shows this certificate to other nodes from now on.
    pub fn identify(&self, identity: &MeshIdentity) -> Result<(), IdentityError> {
        self.mesh.identify(identity)
    }

    /// Shows these certificates to clients from now on; gives those that cannot be shown.
    pub fn certify(&self, given: &GivenCertificates) -> Vec<RefusedCertificate> {
        self.shared.certificates.take(given)
    }

    /// Shows what an earlier proxy did.
    pub fn certify_again(&self, kept: &GivenCertificates) -> Vec<RefusedCertificate> {
        self.shared.certificates.take_again(kept)
    }

    /// The certificates that are shown, for a start without the daemon.
    pub fn certificates(&self) -> GivenCertificates {
        self.shared.certificates.kept()
    }

    /// Has names answered as a table says.
    async fn apply_names(
        &self,
        inner: &mut BalancerState,
        table: &Table,
        mut inherited: BTreeMap<ListenerKey, OwnedFd>,
    ) {
        self.meters
            .wants
            .learn(table.names.as_ref(), std::time::Instant::now());
        let missing = self.names.learn(table.names.as_ref());
        for (transport, addr) in missing {
            let side = Side::Services;
            let key = ListenerKey {
                side,
                transport,
                addr,
            };
            match self.socket(key, inherited.remove(&key)).await {
                Ok(socket) => self.names.listen(addr, socket),
                Err(error) => inner.unbound_with(key, &error),
            }
        }
    }

    /// A socket that was taken over, or a new one in its network.
    async fn socket(&self, key: ListenerKey, inherited: Option<OwnedFd>) -> io::Result<Socket> {
        let ListenerKey {
            side,
            transport,
            addr,
        } = key;
        match (inherited, side) {
            (Some(descriptor), _) => Socket::take_over(descriptor, transport),
            (None, Side::Host) => Socket::bind(addr, transport),
            (None, Side::Services) => {
                let services = self.services.as_ref().ok_or_else(no_network)?;
                Socket::take_over(services.bind(addr, transport).await?, transport)
            }
        }
    }

    async fn apply_listener(
        &self,
        inner: &mut BalancerState,
        wanted: &(Side, table::Listener),
        inherited: Option<OwnedFd>,
    ) {
        let (key, (side, spec)) = (key(wanted), wanted);
        if let Some(running) = inner.listeners.get_mut(&key) {
            if running.spec == *spec {
                return;
            }
            if running.spec.protocol == spec.protocol && running.spec.tls == spec.tls {
                running.reroute(spec.clone(), self.route_set(spec));
                return;
            }
            // The same socket goes on under another protocol: no connection is refused.
            match self.start(*side, spec, running.socket.clone()) {
                Ok(started) => {
                    if let Some(before) = inner.listeners.insert(key, started) {
                        before.close().await;
                    }
                }
                Err(error) => inner.unbound_with(key, &error),
            }
            return;
        }
        if let Some(quiet) = inner.quiet.get_mut(&key).filter(|_| !spec.is_ready()) {
            quiet.spec = spec.clone();
            return;
        }
        let socket = match inner.quiet.remove(&key) {
            Some(quiet) => quiet.socket.reopen(key.transport),
            None => self.socket(key, inherited).await,
        };
        match socket.and_then(|socket| self.start(*side, spec, socket)) {
            Ok(started) => {
                inner.listeners.insert(key, started);
            }
            Err(error) => inner.unbound_with(key, &error),
        }
    }

    fn start(&self, side: Side, spec: &table::Listener, socket: Socket) -> io::Result<RunningListener> {
        RunningListener::start(&self.shared, side, spec.clone(), socket, self.route_set(spec))
    }

    fn route_set(&self, spec: &table::Listener) -> RouteSet {
        RouteSet::new(&spec.routes, &self.meters, |route, backend| {
            self.backends.state(endpoint_of(&route.id), backend)
        })
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
            refused_calls: self.shared.judge.refused(),
            backends: self.backends.status(),
        }
    }

    /// What has passed each endpoint that was called.
    pub fn figures(&self) -> Vec<EndpointFigures> {
        self.meters.figures()
    }

    /// What was passed on for others.
    pub fn relayed(&self) -> RelayFigures {
        self.mesh.relayed()
    }

    /// What is wanted of other deployments, once that is something else than at this count, or after a while all the same.
    pub async fn wants(&self, seen: u64, wait: Duration) -> (u64, Vec<WantedService>) {
        let wants = &self.meters.wants;
        // Who waits in vain learns what was given up meanwhile.
        let _ = tokio::time::timeout(wait, wants.changed(seen)).await;
        let number = wants.number();
        (
            number,
            wants.wanted(&self.meters.figures(), std::time::Instant::now()),
        )
    }

    /// Takes whether anybody who decides hears this node.
    pub fn hear(&self, is_heard: bool) {
        self.meters.wants.hear(is_heard);
    }

    /// Whether requests wait for a first replica.
    pub fn has_waiting(&self) -> bool {
        self.meters.figures().iter().any(|figures| figures.waiting > 0)
    }

    /// Waits until none of these has anything in flight, or until the deadline; gives those that are idle.
    pub async fn wait_drained(&self, ids: &[String], deadline: Instant) -> Vec<String> {
        self.backends.wait_drained(ids, deadline).await
    }

    /// The table and the sockets that serve it, for the proxy after this one.
    pub async fn sockets(&self) -> (Table, Vec<(ListenerKey, Socket)>) {
        let inner = self.inner.lock().await;
        (inner.table.clone(), self.sockets_of(&inner))
    }

    /// Uses this connection to the socket store from now on, which holds these names already.
    pub async fn keep_in(&self, store: StoreConnection, names: BTreeSet<String>) {
        // Nothing is opened or closed meanwhile.
        let inner = self.inner.lock().await;
        let sockets = self.sockets_of(&inner);
        self.kept.give(store, names).await;
        self.kept.own(&sockets).await;
        self.kept.hold(&sockets).await;
    }

    fn sockets_of(&self, inner: &BalancerState) -> Vec<(ListenerKey, Socket)> {
        let running = inner.listeners.iter();
        let running = running.map(|(key, running)| (*key, running.socket.clone()));
        let quiet = inner
            .quiet
            .iter()
            .map(|(key, quiet)| (*key, quiet.socket.clone()));
        let mut sockets: Vec<_> = running.chain(quiet).collect();
        for (transport, addr, socket) in self.names.sockets() {
            let side = Side::Services;
            let key = ListenerKey {
                side,
                transport,
                addr,
            };
            sockets.push((key, socket));
        }
        let mesh = inner.mesh.iter();
        sockets.extend(mesh.map(|mesh| (mesh_key(mesh.addr), mesh.socket.clone())));
        sockets
    }

    /// The network of service addresses that this proxy listens in.
    pub fn namespace(&self) -> Option<NamespaceId> {
        self.services.as_ref().map(ServiceSockets::id)
    }

    /// Accepts nothing more; what is open finishes.
    pub async fn end(&self) {
        let mut inner = self.inner.lock().await;
        inner.ended = true;
        inner.unbound.clear();
        if let Some(mesh) = inner.mesh.take() {
            mesh.stop.cancel();
        }
        self.mesh.end();
        close(std::mem::take(&mut inner.listeners)).await;
        inner.quiet.clear();
        self.names.end();
        self.meters.wants.end();
        self.kept.end().await;
        self.shared.tasks.close();
    }

    /// Returns when nothing is open any more, after [`Balancer::end`].
    pub async fn finished(&self) {
        self.shared.tasks.wait().await;
    }

    /// What is done every few seconds: idle connections are let go.
    pub fn sweep(&self) {
        self.backends.sweep();
        self.mesh.sweep();
    }
}

impl BalancerState {
    fn applied(&self) -> Applied {
        let mesh = self.mesh.iter().map(|mesh| mesh.addr);
        let bound = self.listeners.keys().chain(self.quiet.keys());
        let bound = bound.map(|key| key.addr).chain(mesh);
        let bound = bound.map(|addr| (addr, Ok(())));
        let unbound = self.unbound.iter();
        let unbound = unbound.map(|(key, unbound)| (key.addr, Err(unbound.why.clone())));
        let taken = self.unbound.iter().filter(|(_, unbound)| unbound.taken);
        Applied {
            listeners: bound.chain(unbound).collect(),
            taken: taken.map(|(key, _)| (key.transport, key.addr)).collect(),
        }
    }

    fn unbound_with(&mut self, key: ListenerKey, error: &io::Error) {
        // In its own network nobody but the proxy itself has an address.
        let taken = key.side == Side::Host && error.kind() == io::ErrorKind::AddrInUse;
        let why = why_not(key.addr, error);
        self.unbound.insert(key, Unbound { why, taken });
    }
}

fn no_network() -> io::Error {
    io::Error::other("this proxy has no network of its own: the daemon's log says why")
}

/// Everything that a table wants listened on, in both networks.
fn specs(table: &Table) -> Vec<(Side, table::Listener)> {
    let host = table.listeners.iter().cloned().map(|spec| (Side::Host, spec));
    let named = table.names.iter().flat_map(table::Names::listeners);
    host.chain(named.map(|spec| (Side::Services, spec))).collect()
}

async fn close(listeners: BTreeMap<ListenerKey, RunningListener>) {
    for listener in listeners.into_values() {
        listener.close().await;
    }
}

fn key((side, spec): &(Side, table::Listener)) -> ListenerKey {
    ListenerKey {
        side: *side,
        transport: spec.protocol.transport(),
        addr: spec.addr,
    }
}

/// The listener of the mesh is the host's.
fn mesh_key(addr: SocketAddr) -> ListenerKey {
    ListenerKey {
        side: Side::Host,
        transport: Transport::Stream,
        addr,
    }
}
