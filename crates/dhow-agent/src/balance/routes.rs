//! Which ports the node's services have, and who stands behind them: what the proxy's table is made from. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use dhow_core::ids::{Generation, ReplicaName, ServiceKey};
use dhow_core::spec::{self, Endpoint, Expose, ServiceSpec};

use super::BackendAddress;
use crate::proxy::{Backend, Listener, Protocol, Route, TABLE_VERSION, Table};

/// An endpoint that is listened for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Door {
    addr: SocketAddr,
    protocol: Protocol,
    host: Option<String>,
    path: Option<String>,
}

/// See the module. Keys are the ids that the table has, so that a saved table can be taken up again.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// By `deployment/service/endpoint`.
    doors: BTreeMap<String, Door>,
    /// By the backend's id: its route and address, for each endpoint that it serves.
    backends: BTreeMap<String, Vec<(String, SocketAddr)>>,
    draining: BTreeSet<String>,
    /// The newest generation that has said what the service's endpoints are.
    spoken: BTreeMap<ServiceKey, Generation>,
}

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
            for route in &listener.routes {
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
        let wanted: BTreeMap<String, Door> = spec
            .endpoints
            .iter()
            .map(|endpoint| (format!("{prefix}{}", endpoint.name), door_of(endpoint)))
            .collect();
        for (id, door) in &wanted {
            let others = self.doors.iter().filter(|(other, _)| !other.starts_with(&prefix));
            if let Some((other, _)) = others.clone().find(|(_, other)| clashes(door, other)) {
                return Err(format!(
                    "port {} of endpoint {id} is already served for {other}",
                    door.addr.port()
                ));
            }
        }
        self.spoken.insert(service.clone(), generation);
        self.doors.retain(|id, _| !id.starts_with(&prefix));
        self.doors.extend(wanted);
        Ok(())
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
        self.doors
            .retain(|id, _| prefixes.iter().any(|prefix| id.starts_with(prefix)));
    }

    pub fn close(&mut self, service: &ServiceKey) {
        let prefix = route_prefix(service);
        self.spoken.remove(service);
        self.doors.retain(|id, _| !id.starts_with(&prefix));
    }

    /// The addresses that a service listens on.
    pub fn addresses(&self, service: &ServiceKey) -> BTreeSet<SocketAddr> {
        let prefix = route_prefix(service);
        let own = self.doors.iter().filter(|(id, _)| id.starts_with(&prefix));
        own.map(|(_, door)| door.addr).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.doors.is_empty()
    }

    pub fn table(&self, revision: u64) -> Table {
        let mut listeners: BTreeMap<SocketAddr, Listener> = BTreeMap::new();
        for (id, door) in &self.doors {
            let listener = listeners.entry(door.addr).or_insert_with(|| Listener {
                addr: door.addr,
                protocol: door.protocol,
                routes: Vec::new(),
            });
            listener.routes.push(Route {
                id: id.clone(),
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

/// Whether both cannot be listened for: HTTP can share a port by host and path, everything else cannot.
fn clashes(one: &Door, other: &Door) -> bool {
    if one.addr.port() != other.addr.port() {
        return false;
    }
    let is_udp = |door: &Door| door.protocol == Protocol::Udp;
    if is_udp(one) != is_udp(other) {
        return false;
    }
    let shares = one.addr == other.addr && one.protocol == Protocol::Http && other.protocol == Protocol::Http;
    !shares || (one.host == other.host && one.path == other.path)
}

#[cfg(test)]
mod tests;
