//! The balancer of this node: keeps the proxy's table as replicas come and go. The proxy runs only while there is
//! something to serve.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use dhow_core::ids::{ReplicaName, ServiceKey};
use dhow_core::spec::{Runtime, ServiceSpec};
use dhow_core::usage::{EndpointFigures, RelayFigures};
use dhow_driver::driver::error_chain;
use dhow_wire::ServiceRange;
use tokio::sync::watch;

use super::book::AddressBook;
use super::credentials::{give_certificates, give_identity};
use super::door::WebPorts;
use super::known::{LoopbackPort, NodePlace};
use super::known_file::Remembered;
use super::routes::{Routes, backend_id};
use super::variables::variables;
use super::wants::Wants;
use super::{
    BackendAddress, Balancer, BalancerFuture, CallWay, CallsFrom, NoWay, figures, known_file, loopback,
};
use crate::proxy::{
    Dns, GivenCertificates, MeshIdentity, ProxyClient, ProxyConfig, ProxyError, RefusedCertificate,
    RelayDuty, Table, Transport, Trusted, saved_table,
};
use crate::session::KnownDirectory;

/// How long the proxy may take to finish what is in flight when nothing is served any more.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// How often what is wanted may change while a table is made: runners speak one after the other, and more than these at a
/// time are told with the next table.
const SETTLING_MAX: u32 = 16;

/// The node's network, as it is configured and as the host can have it.
#[derive(Clone, Debug)]
pub struct NodeNetwork {
    /// Where the address book and the last directory are kept.
    pub dir: PathBuf,
    pub range: ServiceRange,
    /// Where public endpoints are served.
    pub ingress_addr: IpAddr,
    /// The ports there that those with a host share.
    pub web: WebPorts,
    /// Who in front of this node speaks for others.
    pub trusted: Trusted,
    /// What it may do where it passes on for others that nobody can dial.
    pub relay: RelayDuty,
    /// Where containers ask for names; none where there are no containers, or they cannot.
    pub dns: Option<Dns>,
}

/// The node's balancer as runners see it: it starts the proxy's process when the first endpoint is opened, and sends it
/// each new table.
pub struct NodeBalancer {
    config: ProxyConfig,
    network_dir: PathBuf,
    wanted: Mutex<Wanted>,
    /// What this node asks servers for.
    wants: Wants,
    /// Counts what servers have told.
    heard: watch::Sender<u64>,
    /// One writer of the network's folder at a time.
    disk: tokio::sync::Mutex<()>,
    /// One table at a time goes to the proxy.
    served: tokio::sync::Mutex<Served>,
}

#[derive(Default)]
struct Wanted {
    routes: Routes,
    /// Ports of the loopback that the proxy has, or was found to be able to have.
    sure: BTreeSet<(Transport, SocketAddr)>,
    /// Counts the changes.
    revision: u64,
}

impl Wanted {
    /// The ports of the loopback of which nobody knows yet whether they can be had.
    fn unsure(&self) -> impl Iterator<Item = LoopbackPort> {
        let ports = self.routes.known.loopback_ports().into_iter();
        ports.filter(|port| !self.sure.contains(&(port.transport, port.addr)))
    }
}

#[derive(Default)]
struct Served {
    client: Option<Arc<ProxyClient>>,
    /// What the proxy shows to others: given to each one that is started, because it may never have had it.
    identity: Option<MeshIdentity>,
    /// The same for what it shows to clients.
    certificates: Option<GivenCertificates>,
    /// The revision of the table that the proxy has, and the listeners that it could not bind.
    revision: u64,
    unbound: Vec<(SocketAddr, String)>,
}

impl NodeBalancer {
    /// Takes up what an earlier daemon left; starts nothing.
    pub fn open(config: ProxyConfig, network: NodeNetwork) -> Self {
        let saved = saved_table(&config.dir).unwrap_or_else(|error| {
            // The table is made anew from what runs; for a moment less is served than could be.
            tracing::warn!(%error, "the balancer's table cannot be read");
            None
        });
        let mut routes = saved.as_ref().map(Routes::from_table).unwrap_or_default();
        let known = &mut routes.known;
        (known.range, known.dns) = (network.range, network.dns);
        known.ingress_addr = Some(network.ingress_addr);
        (known.web, known.trusted) = (network.web, network.trusted);
        known.relay = Some(network.relay);
        known.book = AddressBook::read(&network.dir).unwrap_or_else(|error| {
            tracing::error!(%error, "the addresses of services cannot be read; they get new ones");
            AddressBook::default()
        });
        let mut wanted = BTreeSet::new();
        match known_file::read(&network.dir) {
            Ok(Some(remembered)) => {
                known.remember(remembered.node, Arc::new(remembered.known));
                known.remember_asleep(remembered.asleep);
                known.want(&remembered.wanted);
                wanted = remembered.wanted;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "what is known of services cannot be read; servers tell it anew")
            }
        }
        let listeners = saved.iter().flat_map(|table| &table.listeners);
        let sure = listeners
            .map(|listener| (listener.protocol.transport(), listener.addr))
            .collect();
        Self {
            config,
            network_dir: network.dir,
            wanted: Mutex::new(Wanted {
                routes,
                sure,
                revision: 1,
            }),
            wants: Wants::new(wanted),
            heard: watch::Sender::new(0),
            disk: tokio::sync::Mutex::default(),
            served: tokio::sync::Mutex::default(),
        }
    }

    /// Gives every service that is known its number, and every endpoint that host programs call a port that can be had.
    /// Both are on disk before anybody is told.
    async fn settle(&self) {
        let _disk = self.disk.lock().await;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        let (mut changed, unsure) = {
            let mut wanted = self.wanted();
            let Wanted { routes, .. } = &mut *wanted;
            let services = routes.known.numbered();
            let size = routes.known.service_numbers();
            let mut changed = routes.known.book.keep(&services, size, now);
            // Names of replicas stand below those of their services, which have their numbers by now.
            let replicas = routes.numbered_replicas();
            let numbers = routes.known.replica_numbers();
            changed |= routes.known.book.keep_replicas(&replicas, numbers, now);
            (changed, wanted.unsure().collect::<Vec<_>>())
        };
        if !unsure.is_empty() {
            let found = tokio::task::spawn_blocking(move || loopback::find(unsure)).await;
            let mut wanted = self.wanted();
            for (port, addr) in found.unwrap_or_default() {
                wanted.sure.insert((port.transport, addr));
                if addr != port.addr {
                    let book = &mut wanted.routes.known.book;
                    book.set_port(&port.service, &port.endpoint, addr.port());
                    changed = true;
                }
            }
        }
        if changed {
            let (book, dir) = (self.wanted().routes.known.book.clone(), self.network_dir.clone());
            let written = tokio::task::spawn_blocking(move || book.write(&dir)).await;
            if let Ok(Err(error)) = written {
                tracing::error!(%error, "the addresses of services are not on disk: after a restart they may be others");
            }
        }
    }

    async fn take_told(&self, place: NodePlace, told: Option<&Arc<KnownDirectory>>) {
        let revision = {
            let asked_for = self.wants.now();
            let mut wanted = self.wanted();
            wanted.routes.known.want(&asked_for);
            if !wanted.routes.known.tell(place, told) {
                return;
            }
            wanted.revision += 1;
            wanted.revision
        };
        self.serve_or_say(revision).await;
        self.heard.send_modify(|count| *count += 1);
        if let Some(told) = told {
            let _disk = self.disk.lock().await;
            let dir = self.network_dir.clone();
            let remembered = Remembered {
                node: place.node,
                known: KnownDirectory::clone(told),
                wanted: self.wants.now(),
                asleep: self.wanted().routes.known.asleep().clone(),
            };
            let written = tokio::task::spawn_blocking(move || known_file::write(&dir, &remembered)).await;
            if let Ok(Err(error)) = written {
                tracing::warn!(%error, "what is known of services is not on disk: a restart without servers begins with less");
            }
        }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        // Changed as a whole under the lock; a holder that panicked is a bug elsewhere.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is wanted and gives the revision that has it.
    fn change<T>(&self, change: impl FnOnce(&mut Routes) -> T) -> (u64, T) {
        let mut wanted = self.wanted();
        let outcome = change(&mut wanted.routes);
        wanted.revision += 1;
        (wanted.revision, outcome)
    }

    /// Has everything up to a revision served. Calls that wait for each other are served by one table.
    async fn serve(&self, revision: u64) -> Result<Vec<(SocketAddr, String)>, ProxyError> {
        let mut served = self.served.lock().await;
        // What could not be bound may be free by now.
        if served.revision >= revision && served.unbound.is_empty() {
            return Ok(Vec::new());
        }
        let (newest, table, is_empty) = self.settled().await;
        if is_empty {
            self.stop_proxy(&mut served).await?;
            (served.revision, served.unbound) = (newest, Vec::new());
            return Ok(Vec::new());
        }
        let Served {
            client,
            identity,
            certificates,
            ..
        } = &mut *served;
        let client = match client {
            Some(client) => client,
            none => {
                let opened = Arc::new(ProxyClient::open(self.config.clone()).await?);
                give_identity(&opened, identity.as_ref()).await;
                give_certificates(&opened, certificates.as_ref()).await;
                none.insert(opened)
            }
        };
        let applied = client.apply(table).await?;
        // Once it has the table, which says what an earlier proxy was told.
        self.wants.follow(client);
        let unbound = applied.listeners.into_iter();
        let unbound = unbound.filter_map(|(addr, bound)| Some((addr, bound.err()?)));
        let unbound: Vec<_> = unbound.collect();
        for (addr, why) in unbound.iter().filter(|unbound| !served.unbound.contains(unbound)) {
            tracing::warn!(%addr, why, "the balancer cannot listen there; it tries again");
        }
        served.unbound = unbound;
        served.revision = newest;
        Ok(served.unbound.clone())
    }

    /// The table of what is wanted now, with its revision, and whether there is nothing to serve. What came while numbers
    /// and ports were looked for has to have its own first: a port that the proxy itself holds looks like a taken one.
    async fn settled(&self) -> (u64, Table, bool) {
        let mut rounds = 1;
        loop {
            let before = self.wanted().revision;
            self.settle().await;
            let wanted = self.wanted();
            if wanted.revision == before || rounds == SETTLING_MAX {
                let table = wanted.routes.table(wanted.revision);
                return (wanted.revision, table, wanted.routes.is_empty());
            }
            rounds += 1;
        }
    }

    async fn serve_or_say(&self, revision: u64) {
        if let Err(error) = self.serve(revision).await {
            tracing::error!(
                why = error_chain(&error),
                "the balancer does not have the newest endpoints"
            );
        }
    }

    /// Ends the proxy, also one that an earlier daemon left.
    async fn stop_proxy(&self, served: &mut Served) -> Result<(), ProxyError> {
        self.wants.stop();
        let client = match served.client.take() {
            Some(client) => Some(client),
            // What this daemon has served, it has ended itself.
            None if served.revision > 0 => None,
            None => {
                let dir = self.config.dir.clone();
                let saved = tokio::task::spawn_blocking(move || saved_table(&dir)).await;
                let is_left = saved.is_ok_and(|saved| saved.is_ok_and(|saved| saved.is_some()));
                match is_left {
                    true => Some(Arc::new(ProxyClient::open(self.config.clone()).await?)),
                    false => None,
                }
            }
        };
        match client {
            Some(client) => client.stop(STOP_GRACE).await,
            None => Ok(()),
        }
    }

    /// Ends the proxy, also one that an earlier daemon left, and forgets what servers have told: nobody tells it anew.
    async fn end(&self) -> Result<(), ProxyError> {
        let mut served = self.served.lock().await;
        self.stop_proxy(&mut served).await?;
        let _disk = self.disk.lock().await;
        let dir = self.network_dir.clone();
        let removed = tokio::task::spawn_blocking(move || known_file::remove(&dir)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "what is known of services is still on disk");
        }
        Ok(())
    }

    async fn open_service(&self, name: &ReplicaName, spec: &ServiceSpec) -> Result<(), String> {
        let service = name.service_key();
        let (revision, opened) = {
            let mut wanted = self.wanted();
            let before = wanted.routes.table(0);
            let opened = wanted.routes.open(&service, name.generation, spec);
            // Most calls change nothing.
            if wanted.routes.known.lacks_numbers() || wanted.routes.table(0) != before {
                wanted.revision += 1;
            }
            (wanted.revision, opened)
        };
        opened?;
        let unbound = self.serve(revision).await;
        let unbound = unbound.map_err(|error| format!("the balancer failed: {}", error_chain(&error)))?;
        let own = self.wanted().routes.public_addresses(&service);
        match unbound.into_iter().find(|(addr, _)| own.contains(addr)) {
            Some((_, why)) => Err(why),
            None => Ok(()),
        }
    }

    async fn drain(&self, name: &ReplicaName, drain_max: Duration) {
        let (revision, known) = self.change(|routes| routes.drain(name));
        if !known {
            return;
        }
        self.serve_or_say(revision).await;
        if !drain_max.is_zero() {
            let served = self.served.lock().await;
            let waiting = served.client.clone();
            drop(served);
            if let Some(client) = waiting {
                // One that does not answer drains nothing either.
                let _ = client.wait_drained(vec![backend_id(name)], drain_max).await;
            }
        }
        // The next table leaves it out; until then it stands there as draining.
        self.change(|routes| routes.remove(name));
    }
}

impl Balancer for NodeBalancer {
    fn open<'a>(
        &'a self,
        name: &'a ReplicaName,
        spec: &'a ServiceSpec,
    ) -> BalancerFuture<'a, Result<(), String>> {
        Box::pin(self.open_service(name, spec))
    }

    fn claim<'a>(
        &'a self,
        name: &'a ReplicaName,
        next: Option<&'a ServiceSpec>,
    ) -> BalancerFuture<'a, Result<(), String>> {
        Box::pin(async move {
            match next {
                Some(spec) => self.claim_next(name, spec).await,
                None => {
                    self.unclaim(name).await;
                    Ok(())
                }
            }
        })
    }

    fn admit<'a>(&'a self, name: &'a ReplicaName, backends: &'a [BackendAddress]) -> BalancerFuture<'a, ()> {
        Box::pin(async move {
            let (revision, ()) = self.change(|routes| routes.admit(name, backends));
            self.serve_or_say(revision).await;
        })
    }

    fn withdraw<'a>(&'a self, name: &'a ReplicaName, drain_max: Duration) -> BalancerFuture<'a, ()> {
        Box::pin(self.drain(name, drain_max))
    }

    fn retain<'a>(&'a self, names: &'a BTreeSet<ReplicaName>) -> BalancerFuture<'a, ()> {
        Box::pin(async move {
            let (revision, is_empty) = self.change(|routes| {
                routes.retain(names);
                routes.is_empty()
            });
            // A node without endpoints needs no proxy; one that an earlier daemon left is ended.
            if !is_empty || saved_table(&self.config.dir).is_ok_and(|saved| saved.is_some()) {
                self.serve_or_say(revision).await;
            }
        })
    }

    fn identify(&self, identity: MeshIdentity) -> BalancerFuture<'_, ()> {
        Box::pin(async move {
            let mut served = self.served.lock().await;
            if let Some(client) = &served.client {
                give_identity(client, Some(&identity)).await;
            }
            served.identity = Some(identity);
        })
    }

    fn leave(&self) -> BalancerFuture<'_, ()> {
        Box::pin(async move {
            if let Err(error) = self.end().await {
                tracing::error!(
                    why = error_chain(&error),
                    "the balancer did not end: it still listens on the ports of services"
                );
            }
        })
    }

    fn certify(&self, given: GivenCertificates) -> BalancerFuture<'_, Vec<RefusedCertificate>> {
        Box::pin(async move {
            let mut served = self.served.lock().await;
            let refused = match &served.client {
                Some(client) => give_certificates(client, Some(&given)).await,
                None => Vec::new(),
            };
            served.certificates = Some(given);
            refused
        })
    }

    fn close<'a>(&'a self, service: &'a ServiceKey) -> BalancerFuture<'a, ()> {
        Box::pin(async move {
            let revision = {
                let mut wanted = self.wanted();
                let before = wanted.routes.table(0);
                wanted.routes.close(service);
                if wanted.routes.table(0) == before {
                    return;
                }
                wanted.revision += 1;
                wanted.revision
            };
            self.serve_or_say(revision).await;
        })
    }

    fn way<'a>(
        &'a self,
        from: &'a ServiceKey,
        runtime: Runtime,
        to: &'a ServiceKey,
        endpoint: &'a str,
    ) -> BalancerFuture<'a, Result<CallWay, NoWay>> {
        Box::pin(self.find_way(from, runtime, to, endpoint))
    }

    fn figures(&self) -> BalancerFuture<'_, Option<Vec<EndpointFigures>>> {
        Box::pin(async move {
            let client = async { self.served.lock().await.client.clone() };
            figures::counted(client, |client| async move { client.figures().await }).await
        })
    }

    fn relayed(&self) -> BalancerFuture<'_, RelayFigures> {
        Box::pin(async move {
            let client = async { self.served.lock().await.client.clone() };
            let told = figures::counted(client, |client| async move { client.relayed().await }).await;
            told.unwrap_or_default()
        })
    }

    fn wants(&self) -> Option<watch::Receiver<BTreeSet<ServiceKey>>> {
        Some(self.wants.subscribe())
    }

    fn calling(&self) -> Option<watch::Receiver<u64>> {
        Some(self.wants.calling())
    }

    fn hear(&self, is_heard: bool) {
        self.wants.hear(is_heard);
    }

    fn told<'a>(&'a self, place: NodePlace, told: Option<&'a Arc<KnownDirectory>>) -> BalancerFuture<'a, ()> {
        Box::pin(self.take_told(place, told))
    }

    fn variables<'a>(
        &'a self,
        name: &'a ReplicaName,
        spec: &'a ServiceSpec,
    ) -> BalancerFuture<'a, BTreeMap<String, String>> {
        Box::pin(async move {
            let reached = self
                .wanted()
                .routes
                .known
                .reached_from(&name.deployment, spec.runtime());
            variables(&reached)
        })
    }

    fn calls_from<'a>(&'a self, name: &'a ReplicaName, from: CallsFrom) -> BalancerFuture<'a, ()> {
        Box::pin(async move {
            let revision = {
                let mut wanted = self.wanted();
                if !wanted.routes.known.calls_from(name, from) {
                    return;
                }
                wanted.revision += 1;
                wanted.revision
            };
            self.serve_or_say(revision).await;
        })
    }

    fn calls_no_more<'a>(&'a self, name: &'a ReplicaName) -> BalancerFuture<'a, ()> {
        Box::pin(async move {
            // The next table leaves it out; whoever gets its place is told before it runs.
            self.change(|routes| routes.known.calls_no_more(&backend_id(name)));
        })
    }
}

mod claims;
mod find_way;
