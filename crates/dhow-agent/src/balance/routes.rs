//! Which ports the node's services have, and who stands behind them: what the proxy's table is made from. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use dhow_core::ids::{Generation, ReplicaName, ServiceKey};
use dhow_core::spec::{self, Endpoint, Expose, ServiceSpec};

use super::BackendAddress;
use crate::proxy::{Backend, Listener, Protocol, Route, TABLE_VERSION, Table, Transport};

/// An endpoint that is listened for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Door {
    addr: SocketAddr,
    protocol: Protocol,
    host: Option<String>,
    path: Option<String>,
}

/// The endpoints of the node's services and the replicas behind each of them. The node's balancer changes them as
/// runners say, and makes the proxy's tables from them. Keys are the ids that a table has, so that a saved table can be
/// taken up again.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// By `deployment/service/endpoint`.
    doors: BTreeMap<String, Door>,
    /// By the backend's id: its route and address, for each endpoint that it serves.
    backends: BTreeMap<String, Vec<(String, SocketAddr)>>,
    draining: BTreeSet<String>,
    /// By the backend's id: the doors that its service is to have next, where it tries other settings.
    claims: BTreeMap<String, BTreeMap<String, Door>>,
    /// The newest generation that has said what the service's endpoints are.
    spoken: BTreeMap<ServiceKey, Generation>,
}

/// Marks the route of a door that is only to come: no endpoint's name has it.
const TO_COME: &str = "+next";

/// `deployment/service-role-index@generation`.
pub fn backend_id(name: &ReplicaName) -> String {
    format!("{name}@{}", name.generation)
}

fn route_prefix(service: &ServiceKey) -> String {
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
                let door = Door {
                    addr: listener.addr,
                    protocol: listener.protocol,
                    host: route.host.clone(),
                    path: route.path.clone(),
                };
                routes.doors.insert(route.id.clone(), door);
                for backend in route.backends.iter().filter(|backend| !backend.draining) {
                    let served = routes.backends.entry(backend.id.clone()).or_default();
                    served.push((route.id.clone(), backend.addr));
                }
            }
        }
        routes
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
        let wanted = self.free_doors(&prefix, spec)?;
        self.spoken.insert(service.clone(), generation);
        self.doors.retain(|id, _| !id.starts_with(&prefix));
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
        let mut wanted = self.free_doors(&route_prefix(&service), spec)?;
        wanted.retain(|id, door| self.doors.get(id) != Some(door));
        self.claims.insert(backend_id(name), wanted);
        Ok(())
    }

    pub fn unclaim(&mut self, name: &ReplicaName) {
        self.claims.remove(&backend_id(name));
    }

    /// The doors of a spec, unless another service has one of them or is about to.
    fn free_doors(&self, prefix: &str, spec: &ServiceSpec) -> Result<BTreeMap<String, Door>, String> {
        let mut wanted: BTreeMap<String, Door> = BTreeMap::new();
        for endpoint in &spec.endpoints {
            let (id, door) = (format!("{prefix}{}", endpoint.name), door_of(endpoint));
            let claimed = self.claims.values().flatten();
            let mut others = self.doors.iter().chain(claimed);
            let other = others.find(|(other, held)| !other.starts_with(prefix) && clashes(&door, held));
            if let Some((other, _)) = other {
                return Err(format!(
                    "port {} of endpoint {id} belongs to endpoint {other} already",
                    door.addr.port()
                ));
            }
            wanted.insert(id, door);
        }
        Ok(wanted)
    }

    /// The doors that are to come and need a listener of their own: a port that is listened on already stays as it
    /// is until they are there.
    fn to_come(&self) -> BTreeMap<&String, &Door> {
        let mut coming: BTreeMap<&String, &Door> = BTreeMap::new();
        for (id, door) in self.claims.values().flatten() {
            let is_open = self.doors.values().any(|open| same_port(open, door));
            let mut others = coming.iter().filter(|(other, _)| **other != id);
            if !is_open && !others.any(|(_, other)| clashes(door, other)) {
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
            .retain(|id, _| prefixes.iter().any(|prefix| id.starts_with(prefix)));
    }

    pub fn close(&mut self, service: &ServiceKey) {
        let prefix = route_prefix(service);
        self.spoken.remove(service);
        self.doors.retain(|id, _| !id.starts_with(&prefix));
        self.claims
            .retain(|_, claimed| !claimed.keys().any(|id| id.starts_with(&prefix)));
    }

    /// The addresses that a service listens on.
    pub fn addresses(&self, service: &ServiceKey) -> BTreeSet<SocketAddr> {
        let prefix = route_prefix(service);
        let own = self.doors.iter().filter(|(id, _)| id.starts_with(&prefix));
        own.map(|(_, door)| door.addr).collect()
    }

    /// The addresses that a replica has claimed for its service.
    pub fn claimed(&self, name: &ReplicaName) -> BTreeSet<(Transport, SocketAddr)> {
        let claimed = self.claims.get(&backend_id(name)).into_iter().flatten();
        claimed
            .map(|(_, door)| (door.protocol.transport(), door.addr))
            .collect()
    }

    /// Everything that is listened on, or is to be.
    pub fn listened(&self) -> BTreeSet<SocketAddr> {
        let coming = self.to_come().into_values();
        let doors = self.doors.values().chain(coming);
        doors.map(|door| door.addr).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.doors.is_empty() && self.claims.values().all(BTreeMap::is_empty)
    }

    pub fn table(&self, revision: u64) -> Table {
        let mut listeners: BTreeMap<(Transport, SocketAddr), Listener> = BTreeMap::new();
        let open = self.doors.iter().map(|(id, door)| (id, id.clone(), door));
        let coming = self.to_come().into_iter();
        let coming = coming.map(|(id, door)| (id, format!("{id}{TO_COME}"), door));
        for (id, route, door) in open.chain(coming) {
            let key = (door.protocol.transport(), door.addr);
            let listener = listeners.entry(key).or_insert_with(|| Listener {
                addr: door.addr,
                protocol: door.protocol,
                routes: Vec::new(),
            });
            listener.routes.push(Route {
                id: route,
                host: door.host.clone(),
                path: door.path.clone(),
                backends: self.behind(id),
            });
        }
        Table {
            version: TABLE_VERSION,
            revision,
            listeners: listeners.into_values().collect(),
        }
    }

    fn behind(&self, route: &str) -> Vec<Backend> {
        let serves = |(id, served): (&String, &Vec<(String, SocketAddr)>)| {
            let (_, addr) = served.iter().find(|(served, _)| served == route)?;
            Some(Backend {
                id: id.clone(),
                addr: *addr,
                draining: self.draining.contains(id),
            })
        };
        self.backends.iter().filter_map(serves).collect()
    }
}

fn door_of(endpoint: &Endpoint) -> Door {
    let ip = match endpoint.expose {
        Expose::Public => Ipv4Addr::UNSPECIFIED,
        Expose::Internal => Ipv4Addr::LOCALHOST,
    };
    let protocol = match endpoint.protocol {
        spec::Protocol::Http | spec::Protocol::Websocket => Protocol::Http,
        // What is encrypted is passed on as it is.
        spec::Protocol::Https | spec::Protocol::Tcp => Protocol::Tcp,
        spec::Protocol::Udp => Protocol::Udp,
    };
    Door {
        addr: (ip, endpoint.port).into(),
        protocol,
        host: endpoint.host.clone().filter(|_| protocol == Protocol::Http),
        path: endpoint.path.clone().filter(|_| protocol == Protocol::Http),
    }
}

/// Whether they need the same port of the host.
fn same_port(one: &Door, other: &Door) -> bool {
    one.protocol.transport() == other.protocol.transport() && one.addr.port() == other.addr.port()
}

/// Whether both cannot be listened for: HTTP can share a port by host and path, everything else cannot.
fn clashes(one: &Door, other: &Door) -> bool {
    if !same_port(one, other) {
        return false;
    }
    let shares = one.addr == other.addr && one.protocol == Protocol::Http && other.protocol == Protocol::Http;
    !shares || (one.host == other.host && one.path == other.path)
}

#[cfg(test)]
mod tests;
