//! Which ports the node's services have, and who stands behind them: what the proxy's table is made from. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use dhow_core::ids::{Generation, ReplicaName, ServiceKey};
use dhow_core::spec::ServiceSpec;

use super::BackendAddress;
use super::book::ReplicaKey;
use super::door::{Door, Ingress};
use super::known::Known;
use crate::proxy::{Backend, Listener, Route, Table, Transport};

/// The endpoints of the node's services and the replicas behind each of them. The node's balancer changes them as
/// runners say, and makes the proxy's tables from them. Keys are the ids that a table has, so that a saved table can be
/// taken up again.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    doors: Doors,
    /// By the backend's id: its route and address, for each endpoint that it serves.
    backends: BTreeMap<String, Vec<(String, SocketAddr)>>,
    draining: BTreeSet<String>,
    /// By the backend's id: the doors that its service is to have next, where it tries other settings.
    claims: BTreeMap<String, Doors>,
    /// The newest generation that has said what the service's endpoints are.
    spoken: BTreeMap<ServiceKey, Generation>,
    /// What else the node knows of services, and where its public endpoints are.
    pub known: Known,
}

/// By `deployment/service/endpoint` and port.
pub type Doors = BTreeMap<(String, u16), Door>;

/// Marks the route of a door that is only to come: no endpoint's name has it.
const TO_COME: &str = "+next";

/// `deployment/service-role-index@generation`.
pub fn backend_id(name: &ReplicaName) -> String {
    format!("{name}@{}", name.generation)
}

pub fn route_prefix(service: &ServiceKey) -> String {
    format!("{}/{}/", service.deployment, service.service)
}

impl Routes {
    /// What an earlier daemon left.
    pub fn from_table(table: &Table) -> Self {
        let mut routes = Self::default();
        for listener in &table.listeners {
            // What is only to come is claimed anew by who tries it.
            let known = listener
                .routes
                .iter()
                .filter(|route| !route.id.ends_with(TO_COME));
            for route in known {
                if let Some(door) = Door::from_table(listener, route) {
                    routes.doors.insert((route.id.clone(), door.port), door);
                }
                routes.take_backends(&route.id, &route.backends);
            }
        }
        for service in table.names.iter().flat_map(|names| &names.services) {
            for endpoint in &service.endpoints {
                let id = format!("{}/{}/{}", service.deployment, service.service, endpoint.name);
                routes.take_backends(&id, &endpoint.backends);
            }
        }
        routes.known.take_up(table);
        routes
    }

    fn take_backends(&mut self, route: &str, backends: &[Backend]) {
        for backend in backends.iter().filter(|backend| !backend.draining) {
            // Replicas of other nodes are told anew.
            let Some(addr) = backend.addr else { continue };
            let served = self.backends.entry(backend.id.clone()).or_default();
            if !served.iter().any(|(known, _)| known == route) {
                served.push((route.to_owned(), addr));
            }
        }
    }

    /// Takes the service's endpoints, or names the one that another service has.
    pub fn open(
        &mut self,
        service: &ServiceKey,
        generation: Generation,
        spec: &ServiceSpec,
    ) -> Result<(), String> {
        if self
            .spoken
            .get(service)
            .is_some_and(|spoken| *spoken > generation)
        {
            return Ok(());
        }
        let prefix = route_prefix(service);
        let wanted = self.free_doors(service, spec)?;
        self.spoken.insert(service.clone(), generation);
        self.known.spoken(service, spec);
        self.doors.retain(|(id, _), _| !id.starts_with(&prefix));
        self.doors.extend(wanted);
        Ok(())
    }

    /// Takes the doors that the replica's service is to have next beside those that it has, or names who has one.
    pub fn claim(&mut self, name: &ReplicaName, spec: &ServiceSpec) -> Result<(), String> {
        let service = name.service_key();
        let spoken = self.spoken.get(&service);
        if spoken.is_some_and(|spoken| *spoken > name.generation) {
            return Ok(());
        }
        let mut wanted = self.free_doors(&service, spec)?;
        wanted.retain(|key, door| self.doors.get(key) != Some(door));
        self.claims.insert(backend_id(name), wanted);
        Ok(())
    }

    pub fn unclaim(&mut self, name: &ReplicaName) {
        self.claims.remove(&backend_id(name));
    }

    /// The doors of a spec, unless another service has a public one of them or is about to. One that is for this host
    /// alone is no reason to refuse: whoever was first keeps the port, and the other is reached by its own address.
    fn free_doors(&self, service: &ServiceKey, spec: &ServiceSpec) -> Result<Doors, String> {
        let prefix = route_prefix(service);
        let mut wanted = Doors::new();
        let doors = spec.endpoints.iter().flat_map(|endpoint| {
            let doors = Door::all(&service.deployment, endpoint, self.known.web);
            doors.into_iter().map(move |door| (&endpoint.name, door))
        });
        for (endpoint, door) in doors {
            let id = format!("{prefix}{endpoint}");
            let claimed = self.claims.values().flatten();
            let mut others = self
                .doors
                .iter()
                .chain(claimed)
                .filter(|(_, held)| held.is_public);
            let other = others.find(|((other, _), held)| !other.starts_with(&prefix) && door.clashes(held));
            if let Some(((other, _), _)) = other.filter(|_| door.is_public) {
                return Err(format!(
                    "port {} of endpoint {id} belongs to endpoint {other} already",
                    door.port
                ));
            }
            wanted.insert((id, door.port), door);
        }
        Ok(wanted)
    }

    /// The doors that are listened for: public ones first, then those of replicas here, then those of services that the
    /// node only knows. Of two that clash the later one has to do without.
    fn open_doors(&self) -> Vec<((String, u16), Door)> {
        let mut open: Vec<((String, u16), Door)> = Vec::new();
        let own = |is_public| {
            let doors = self
                .doors
                .iter()
                .filter(move |(_, door)| door.is_public == is_public);
            doors.map(|(id, door)| (id.clone(), door.clone()))
        };
        let far = self.known.far_doors();
        let (far_public, far): (Vec<_>, Vec<_>) = far.into_iter().partition(|(_, door)| door.is_public);
        let wanted = own(true).chain(far_public).chain(own(false)).chain(far);
        for (id, door) in wanted {
            let is_known = open
                .iter()
                .any(|(other, held)| *other == id || door.clashes(held));
            if !is_known {
                open.push((id, door));
            }
        }
        open
    }

    /// The doors that are to come and need a listener of their own: a port that is listened on already stays as it
    /// is until they are there.
    fn to_come(&self) -> BTreeMap<&(String, u16), &Door> {
        let open = self.open_doors();
        let mut coming: BTreeMap<&(String, u16), &Door> = BTreeMap::new();
        for (id, door) in self.claims.values().flatten() {
            let is_open = open.iter().any(|(_, open)| open.same_port(door));
            let mut others = coming.iter().filter(|(other, _)| **other != id);
            if !is_open && !others.any(|(_, other)| door.clashes(other)) {
                coming.insert(id, door);
            }
        }
        coming
    }

    pub fn admit(&mut self, name: &ReplicaName, backends: &[BackendAddress]) {
        let prefix = route_prefix(&name.service_key());
        let served = backends
            .iter()
            .map(|backend| (format!("{prefix}{}", backend.endpoint), backend.addr));
        let id = backend_id(name);
        self.draining.remove(&id);
        self.backends.insert(id, served.collect());
    }

    /// Whether there was something to drain.
    pub fn drain(&mut self, name: &ReplicaName) -> bool {
        let id = backend_id(name);
        let known = self.backends.contains_key(&id);
        if known {
            self.draining.insert(id);
        }
        known
    }

    pub fn remove(&mut self, name: &ReplicaName) {
        let id = backend_id(name);
        self.draining.remove(&id);
        self.backends.remove(&id);
    }

    pub fn retain(&mut self, names: &BTreeSet<ReplicaName>) {
        let ids: BTreeSet<String> = names.iter().map(backend_id).collect();
        let prefixes: BTreeSet<String> = names
            .iter()
            .map(|name| route_prefix(&name.service_key()))
            .collect();
        self.backends.retain(|id, _| ids.contains(id));
        self.claims.retain(|id, _| ids.contains(id));
        self.doors
            .retain(|(id, _), _| prefixes.iter().any(|prefix| id.starts_with(prefix)));
        self.known
            .retain(&names.iter().map(ReplicaName::service_key).collect());
    }

    pub fn close(&mut self, service: &ServiceKey) {
        let prefix = route_prefix(service);
        self.spoken.remove(service);
        self.known.close(service);
        self.doors.retain(|(id, _), _| !id.starts_with(&prefix));
        self.claims
            .retain(|_, claimed| !claimed.keys().any(|(id, _)| id.starts_with(&prefix)));
    }

    /// The addresses at which a service takes requests from outside: it cannot do without them.
    pub fn public_addresses(&self, service: &ServiceKey) -> BTreeSet<SocketAddr> {
        let prefix = route_prefix(service);
        let own = self.doors.iter().filter(|((id, _), _)| id.starts_with(&prefix));
        own.filter(|(_, door)| door.is_needed())
            .map(|(_, door)| door.addr(self.ingress()))
            .collect()
    }

    /// The public addresses that a replica has claimed for its service.
    pub fn claimed(&self, name: &ReplicaName) -> BTreeSet<(Transport, SocketAddr)> {
        let claimed = self.claims.get(&backend_id(name)).into_iter().flatten();
        claimed
            .filter(|(_, door)| door.is_needed())
            .map(|(_, door)| (door.protocol.transport(), door.addr(self.ingress())))
            .collect()
    }

    /// Everything that is listened on, or is to be.
    pub fn listened(&self) -> BTreeSet<SocketAddr> {
        let listeners = self.listeners().into_iter();
        listeners.map(|listener| listener.addr).collect()
    }

    /// Whether nothing needs the proxy.
    pub fn is_empty(&self) -> bool {
        self.open_doors().is_empty()
            && self.claims.values().all(BTreeMap::is_empty)
            && !self.known.needs_names()
            && !self.known.passes_on()
    }

    fn ingress(&self) -> Ingress {
        self.known.ingress()
    }

    /// The listeners of this host's own ports.
    fn listeners(&self) -> Vec<Listener> {
        let mut listeners: BTreeMap<(Transport, SocketAddr), Listener> = BTreeMap::new();
        let open = self.open_doors().into_iter();
        let open = open.map(|((id, _), door)| (id.clone(), id, door));
        let coming = self.to_come().into_iter();
        let coming = coming.map(|((id, _), door)| (id.clone(), format!("{id}{TO_COME}"), door.clone()));
        let ingress = self.ingress();
        // Elsewhere nobody asks for a host.
        let doors = open
            .chain(coming)
            .filter(|(_, _, door)| ingress.is_open || !door.is_shared);
        for (id, route, door) in doors {
            let addr = door.addr(ingress);
            let key = (door.protocol.transport(), addr);
            let listener = listeners.entry(key).or_insert_with(|| Listener {
                addr,
                protocol: door.protocol,
                tls: door.certificate.is_some(),
                routes: Vec::new(),
            });
            listener.routes.push(Route {
                cold_start_ms: self.known.cold_start_ms_of(&id),
                id: route,
                host: door.host,
                path: door.path,
                backends: self.behind(&id),
                who: door.who,
                certificate: door.certificate,
                redirect: door.redirect,
                ordered: door.ordered,
                options: door.options,
                asleep: false,
            });
        }
        listeners.into_values().collect()
    }

    /// What the proxy is to serve.
    pub fn table(&self, revision: u64) -> Table {
        let mut listeners = self.listeners();
        listeners.extend(self.known.loopback_listeners(&|route| self.behind(route)));
        Table {
            revision,
            listeners,
            names: self.known.names(&|route| self.behind(route)),
            mesh: self.known.mesh(),
            trusted: self.known.trusted.clone(),
            ..Table::empty()
        }
    }

    /// The replicas that need a number of their own.
    pub fn numbered_replicas(&self) -> BTreeSet<ReplicaKey> {
        self.known.numbered_replicas(&|route| self.behind(route))
    }

    /// The replicas behind a route: those of this node, and those that other nodes have.
    pub fn behind(&self, route: &str) -> Vec<Backend> {
        let serves = |(id, served): (&String, &Vec<(String, SocketAddr)>)| {
            let (_, addr) = served.iter().find(|(served, _)| served == route)?;
            Some(Backend {
                draining: self.draining.contains(id),
                canary: self.known.canary(route, id),
                ..Backend::here(id, *addr)
            })
        };
        let here = self.backends.iter().filter_map(serves);
        here.chain(self.known.elsewhere(route)).collect()
    }
}

#[cfg(test)]
mod tests;
