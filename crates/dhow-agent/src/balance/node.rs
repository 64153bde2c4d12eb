//! The balancer of this node: keeps the proxy's table as replicas come and go. The proxy runs only while there is
//! something to serve.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dhow_core::ids::{ReplicaName, ServiceKey};
use dhow_core::spec::ServiceSpec;
use dhow_driver::driver::error_chain;

use super::routes::{Routes, backend_id};
use super::{BackendAddress, Balancer, BalancerFuture};
use crate::proxy::{ProxyClient, ProxyConfig, ProxyError, Transport, saved_table, taken_beside};

/// How long the proxy may take to finish what is in flight when nothing is served any more.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// The node's balancer as runners see it: it starts the proxy's process when the first endpoint is opened, and sends it
/// each new table.
pub struct NodeBalancer {
    config: ProxyConfig,
    wanted: Mutex<Wanted>,
    /// One table at a time goes to the proxy.
    served: tokio::sync::Mutex<Served>,
}

#[derive(Default)]
struct Wanted {
    routes: Routes,
    /// Counts the changes.
    revision: u64,
}

#[derive(Default)]
struct Served {
    client: Option<Arc<ProxyClient>>,
    /// The revision of the table that the proxy has, and the listeners that it could not bind.
    revision: u64,
    unbound: Vec<(SocketAddr, String)>,
}

impl NodeBalancer {
    /// Takes up what an earlier daemon left; starts nothing.
    pub fn open(config: ProxyConfig) -> Self {
        let routes = match saved_table(&config.dir) {
            Ok(Some(table)) => Routes::from_table(&table),
            Ok(None) => Routes::default(),
            Err(error) => {
                // The table is made anew from what runs; for a moment less is served than could be.
                tracing::warn!(%error, "the balancer's table cannot be read");
                Routes::default()
            }
        };
        Self {
            config,
            wanted: Mutex::new(Wanted { routes, revision: 1 }),
            served: tokio::sync::Mutex::default(),
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
        let (newest, table, is_empty) = {
            let wanted = self.wanted();
            let table = wanted.routes.table(wanted.revision);
            (wanted.revision, table, wanted.routes.is_empty())
        };
        if is_empty {
            if let Some(client) = served.client.take() {
                client.stop(STOP_GRACE).await?;
            }
            (served.revision, served.unbound) = (newest, Vec::new());
            return Ok(Vec::new());
        }
        let client = match &mut served.client {
            Some(client) => client,
            none => none.insert(Arc::new(ProxyClient::open(self.config.clone()).await?)),
        };
        let applied = client.apply(table).await?;
        let unbound = applied.listeners.into_iter();
        served.unbound = unbound
            .filter_map(|(addr, bound)| Some((addr, bound.err()?)))
            .collect();
        served.revision = newest;
        Ok(served.unbound.clone())
    }

    async fn serve_or_say(&self, revision: u64) {
        if let Err(error) = self.serve(revision).await {
            tracing::error!(
                why = error_chain(&error),
                "the balancer does not have the newest endpoints"
            );
        }
    }

    async fn open_service(&self, name: &ReplicaName, spec: &ServiceSpec) -> Result<(), String> {
        let service = name.service_key();
        if spec.endpoints.is_empty() && self.wanted().routes.addresses(&service).is_empty() {
            return Ok(());
        }
        let (revision, opened) = {
            let mut wanted = self.wanted();
            let before = wanted.routes.table(0);
            let opened = wanted.routes.open(&service, name.generation, spec);
            // Most calls change nothing.
            if wanted.routes.table(0) != before {
                wanted.revision += 1;
            }
            (wanted.revision, opened)
        };
        opened?;
        let unbound = self.serve(revision).await;
        let unbound = unbound.map_err(|error| format!("the balancer failed: {}", error_chain(&error)))?;
        let own = self.wanted().routes.addresses(&service);
        match unbound.into_iter().find(|(addr, _)| own.contains(addr)) {
            Some((_, why)) => Err(why),
            None => Ok(()),
        }
    }

    async fn claim_next(&self, name: &ReplicaName, spec: &ServiceSpec) -> Result<(), String> {
        if spec.endpoints.is_empty() {
            self.unclaim(name).await;
            return Ok(());
        }
        let (revision, claimed, own) = {
            let mut wanted = self.wanted();
            let before = wanted.routes.table(0);
            wanted.routes.claim(name, spec)?;
            if wanted.routes.claimed(name).is_empty() && wanted.routes.table(0) == before {
                return Ok(());
            }
            wanted.revision += 1;
            let own = wanted.routes.listened();
            (wanted.revision, wanted.routes.claimed(name), own)
        };
        let unbound = match self.serve(revision).await {
            Ok(unbound) => unbound.into_iter(),
            Err(error) => {
                self.unclaim(name).await;
                return Err(format!("the balancer failed: {}", error_chain(&error)));
            }
        };
        let mut unbound = unbound.filter(|(addr, _)| claimed.iter().any(|(_, own)| own == addr));
        let why = match unbound.next() {
            Some((_, why)) => Some(why),
            None => taken_by_others(claimed, own).await,
        };
        match why {
            None => Ok(()),
            Some(why) => {
                self.unclaim(name).await;
                Err(why)
            }
        }
    }

    async fn unclaim(&self, name: &ReplicaName) {
        let revision = {
            let mut wanted = self.wanted();
            let before = wanted.routes.table(0);
            wanted.routes.unclaim(name);
            if wanted.routes.table(0) == before {
                return;
            }
            wanted.revision += 1;
            wanted.revision
        };
        self.serve_or_say(revision).await;
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

/// Who has one of the addresses that are not listened on yet because their port is, on another address.
async fn taken_by_others(
    claimed: BTreeSet<(Transport, SocketAddr)>,
    own: BTreeSet<SocketAddr>,
) -> Option<String> {
    if claimed.iter().all(|(_, addr)| own.contains(addr)) {
        return None;
    }
    let looked = tokio::task::spawn_blocking(move || {
        let mut later = claimed.into_iter().filter(|(_, addr)| !own.contains(addr));
        later.find_map(|(transport, addr)| taken_beside(addr, transport, &own))
    });
    // Who cannot look learns it when the port is opened.
    looked.await.ok().flatten()
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

    fn close<'a>(&'a self, service: &'a ServiceKey) -> BalancerFuture<'a, ()> {
        Box::pin(async move {
            if self.wanted().routes.addresses(service).is_empty() {
                return;
            }
            let (revision, ()) = self.change(|routes| routes.close(service));
            self.serve_or_say(revision).await;
        })
    }
}
