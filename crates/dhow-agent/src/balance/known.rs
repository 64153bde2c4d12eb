//! What the node knows of services: what its runners say, what servers have told, and the addresses that stand for
//! services here. Pure: the parts of the proxy's table that come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use dhow_core::directory::Listing;
use dhow_core::ids::{DeploymentName, Generation, NodeId, ReplicaName, ServiceKey, ServiceName};
use dhow_core::spec::{Endpoint, EndpointOptions, Runtime, ServiceSpec, TimeSpan};
use dhow_wire::ServiceRange;

use super::CallsFrom;
use super::book::AddressBook;
use super::door::{Door, Ingress, WebPorts, proxy_protocol, rule_of};
use super::routes::{backend_id, route_prefix};
use super::variables::Reached;
use crate::proxy::{
    Backend, Caller, Canary, Dns, Listener, NamedEndpoint, NamedService, Names, ProcessCaller, RelayDuty,
    Table, Transport, Trusted,
};
use crate::session::KnownDirectory;

/// What stands behind a route.
pub type Behind<'a> = &'a dyn Fn(&str) -> Vec<Backend>;

/// This node among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePlace {
    pub node: NodeId,
    /// Where the proxies of other nodes reach this one's; none where they do not.
    pub mesh: Option<SocketAddr>,
}

/// A service with a replica here.
#[derive(Clone, Debug, PartialEq)]
struct Local {
    endpoints: Vec<Endpoint>,
    runtime: Runtime,
}

/// Who calls from an address of the bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FromBridge {
    service: ServiceKey,
    /// The backend's id; none where an earlier daemon noted it.
    replica: Option<String>,
}

/// The services that this node knows, from its runners and from servers, with their numbers and callers. The routes of the
/// node's balancer keep one and make tables from it.
#[derive(Clone, Debug, Default)]
pub struct Known {
    place: Option<NodePlace>,
    /// Whom `told` was told.
    told_to: Option<NodeId>,
    told: Option<Arc<KnownDirectory>>,
    local: BTreeMap<ServiceKey, Local>,
    /// Services of other deployments that somebody here has asked for, as far as they are still told.
    asked: BTreeSet<ServiceKey>,
    /// The endpoints of those that are told no more.
    asleep: BTreeMap<ServiceKey, Arc<[Endpoint]>>,
    /// Services that had a replica here when the daemon started and have not spoken since.
    kept: BTreeSet<ServiceKey>,
    /// Whether host programs were served then.
    kept_loopback: bool,
    from_bridge: BTreeMap<Ipv4Addr, FromBridge>,
    /// By the backend's id.
    processes: BTreeMap<String, ProcessCaller>,
    pub book: AddressBook,
    pub range: ServiceRange,
    /// Where containers ask for names; none where they cannot.
    pub dns: Option<Dns>,
    pub ingress_addr: Option<IpAddr>,
    /// The ports that public endpoints with a host share.
    pub web: WebPorts,
    /// Who in front of this node speaks for others.
    pub trusted: Trusted,
    /// What this node may do where it passes on for others.
    pub relay: Option<RelayDuty>,
}

impl Known {
    /// Whether that is news.
    pub fn tell(&mut self, place: NodePlace, told: Option<&Arc<KnownDirectory>>) -> bool {
        let same = |known: &Arc<KnownDirectory>| told.is_some_and(|told| Arc::ptr_eq(known, told));
        let is_same = self.place == Some(place) && (told.is_none() || self.told.as_ref().is_some_and(same));
        if is_same {
            return false;
        }
        if self.told_to.is_some_and(|node| node != place.node) {
            self.told = None;
            self.asleep.clear();
        }
        self.place = Some(place);
        if let Some(told) = told {
            self.put_to_sleep(told);
        }
        self.told = told.cloned().or(self.told.take());
        self.told_to = Some(place.node);
        true
    }

    /// What was told to the daemon before this one, as that node. It counts until something else is told, or this turns
    /// out to be another node.
    pub fn remember(&mut self, node: NodeId, told: Arc<KnownDirectory>) {
        (self.told, self.told_to) = (Some(told), Some(node));
    }

    /// What an earlier daemon left. It counts until the replicas that were there have spoken.
    pub fn take_up(&mut self, table: &Table) {
        let key = |deployment: &str, service: &str| {
            Some(ServiceKey {
                deployment: DeploymentName::new(deployment).ok()?,
                service: ServiceName::new(service).ok()?,
            })
        };
        let names = table.names.iter();
        for caller in names.clone().flat_map(|names| &names.callers) {
            if let Some(service) = key(&caller.deployment, &caller.service) {
                self.kept.insert(service.clone());
                let replica = None;
                self.from_bridge
                    .insert(caller.addr, FromBridge { service, replica });
            }
        }
        let processes = names.flat_map(|names| &names.processes);
        self.kept
            .extend(processes.filter_map(|process| key(&process.deployment, &process.service)));
        let stands_for_service = |listener: &Listener| {
            let ip = listener.addr.ip();
            ip.is_loopback() && ip != IpAddr::V4(Ipv4Addr::LOCALHOST)
        };
        self.kept_loopback = table.listeners.iter().any(stands_for_service);
    }

    pub fn spoken(&mut self, service: &ServiceKey, spec: &ServiceSpec) {
        self.kept.remove(service);
        let local = Local {
            endpoints: spec.endpoints.clone(),
            runtime: spec.runtime(),
        };
        self.local.insert(service.clone(), local);
    }

    pub fn close(&mut self, service: &ServiceKey) {
        self.kept.remove(service);
        self.local.remove(service);
        self.from_bridge.retain(|_, caller| caller.service != *service);
        let is_other = |process: &ProcessCaller| {
            process.deployment != service.deployment.as_str() || process.service != service.service.as_str()
        };
        self.processes.retain(|_, process| is_other(process));
    }

    pub fn retain(&mut self, services: &BTreeSet<ServiceKey>) {
        self.local.retain(|service, _| services.contains(service));
        self.from_bridge
            .retain(|_, caller| services.contains(&caller.service));
        let unspoken = services
            .iter()
            .filter(|service| !self.local.contains_key(*service));
        self.kept = unspoken.cloned().collect();
    }

    /// A replica calls from there from now on; whether that is news.
    pub fn calls_from(&mut self, name: &ReplicaName, from: CallsFrom) -> bool {
        let (service, replica) = (name.service_key(), backend_id(name));
        match from {
            CallsFrom::Bridge(addr) => {
                let replica = Some(replica);
                let is_other =
                    |(known, caller): (&Ipv4Addr, &FromBridge)| *known != addr && caller.replica == replica;
                let moved = self.from_bridge.iter().any(is_other);
                self.from_bridge
                    .retain(|known, caller| *known == addr || caller.replica != replica);
                let caller = FromBridge { service, replica };
                self.from_bridge.insert(addr, caller.clone()) != Some(caller) || moved
            }
            CallsFrom::Process { cgroup, uid } => {
                let process = ProcessCaller {
                    deployment: service.deployment.to_string(),
                    service: service.service.to_string(),
                    cgroup,
                    uid,
                };
                if cgroup.is_none() && uid.is_none() {
                    return self.processes.remove(&replica).is_some();
                }
                self.processes.insert(replica, process.clone()) != Some(process)
            }
        }
    }

    /// Its address may be another one's.
    pub fn calls_no_more(&mut self, replica: &str) -> bool {
        let before = self.from_bridge.len();
        self.from_bridge
            .retain(|_, caller| caller.replica.as_deref() != Some(replica));
        self.processes.remove(replica).is_some() || before != self.from_bridge.len()
    }

    pub fn ingress(&self) -> Ingress {
        let plain = Ingress::default();
        Ingress {
            addr: self.ingress_addr.unwrap_or(plain.addr),
            is_open: self.told.as_ref().is_none_or(|told| told.directory.is_ingress),
        }
    }

    /// The endpoints of every service that is known here: as its replicas on this node say, else as servers do.
    fn services(&self) -> BTreeMap<&ServiceKey, &[Endpoint]> {
        let told = self.told.iter().flat_map(|told| &told.directory.services);
        let told = told.map(|(key, listing)| (key, &*listing.endpoints));
        let local = self
            .local
            .iter()
            .map(|(key, local)| (key, local.endpoints.as_slice()));
        let asleep = self.asleep.iter().map(|(key, endpoints)| (key, &**endpoints));
        asleep
            .chain(told)
            .chain(local)
            .filter(|(_, endpoints)| !endpoints.is_empty())
            .collect()
    }

    /// The endpoints of a service that is known here.
    pub fn endpoints(&self, service: &ServiceKey) -> Option<&[Endpoint]> {
        self.services().get(service).copied()
    }

    /// Where replicas of this node that run so call an endpoint.
    pub fn address(&self, service: &ServiceKey, endpoint: &Endpoint, runtime: Runtime) -> Option<SocketAddr> {
        match runtime {
            Runtime::Process => {
                let port = self.book.port(service, &endpoint.name);
                let address = self.book.loopback(service)?;
                Some((address, port.unwrap_or(endpoint.port)).into())
            }
            Runtime::Container => {
                self.dns.as_ref()?;
                let address = self.range.address(self.book.number(service)?)?;
                Some((address, endpoint.port).into())
            }
        }
    }

    /// Those that need a number.
    pub fn numbered(&self) -> BTreeSet<ServiceKey> {
        self.services().into_keys().cloned().collect()
    }

    /// Whether one of them has none yet.
    pub fn lacks_numbers(&self) -> bool {
        self.services()
            .into_keys()
            .any(|key| self.book.number(key).is_none())
    }

    /// Doors of services that have no replica here, and one elsewhere that answers: nobody is let in for nothing. A service
    /// that may have no replica anywhere is woken by whoever comes. Nodes that share a host share its ports: there the one
    /// with a replica has them, unless each takes requests at an address of its own.
    pub fn far_doors(&self) -> Vec<((String, u16), Door)> {
        let Some(place) = self.place else {
            return Vec::new();
        };
        let shares_host = place.mesh.is_some_and(|mesh| mesh.ip().is_loopback());
        let has_own_address = !self.ingress().addr.is_unspecified();
        if shares_host && !has_own_address {
            return Vec::new();
        }
        let told = self.told.iter().flat_map(|told| &told.directory.services);
        let far = told.filter(|(key, listing)| {
            let is_here = self.local.contains_key(*key) || self.kept.contains(*key);
            let mut ready = listing.ready.iter();
            let is_there = place.mesh.is_some() && ready.any(|ready| ready.node != place.node);
            !is_here && (is_there || listing.cold_start.is_some())
        });
        let doors = far.flat_map(|(key, listing)| {
            let endpoints = listing.endpoints.iter();
            endpoints.flat_map(move |endpoint| {
                let id = format!("{}{}", route_prefix(key), endpoint.name);
                let doors = Door::all(&key.deployment, endpoint, self.web).into_iter();
                doors.map(move |door| ((id.clone(), door.port), door))
            })
        });
        doors.filter(|(_, door)| door.is_public || !shares_host).collect()
    }

    /// The replicas behind a route that other nodes have, as far as their proxies can be reached.
    pub fn elsewhere(&self, route: &str) -> Vec<Backend> {
        let (Some(told), Some(place)) = (&self.told, self.place) else {
            return Vec::new();
        };
        let found = parse_route(route).and_then(|(key, name)| {
            let (key, listing) = told.directory.services.get_key_value(&key)?;
            let endpoint = listing.endpoints.iter().find(|endpoint| endpoint.name == name)?;
            Some((key, listing, endpoint))
        });
        let Some((key, listing, endpoint)) = found.filter(|_| place.mesh.is_some()) else {
            return Vec::new();
        };
        let role = endpoint.target_role.as_ref();
        let ready = listing.ready.iter().filter(|ready| {
            let is_reached = told.directory.nodes.contains_key(&ready.node);
            ready.node != place.node && is_reached && role.is_none_or(|role| *role == ready.role)
        });
        ready
            .map(|ready| Backend {
                id: backend_id(&ready.name(key)),
                addr: None,
                node: Some(ready.node.0),
                draining: false,
                canary: canary_of(listing, ready.generation),
            })
            .collect()
    }

    /// What a replica of this node is of, where it is a canary's.
    pub fn canary(&self, route: &str, backend: &str) -> Option<Canary> {
        let (key, _) = parse_route(route)?;
        let listing = self.told.as_ref()?.directory.services.get(&key)?;
        let (_, generation) = backend.rsplit_once('@')?;
        canary_of(listing, Generation(generation.parse().ok()?))
    }

    /// How long requests wait for the first replica of a service, where it may have none.
    fn cold_start_ms(&self, service: &ServiceKey) -> Option<u64> {
        let listing = self.told.as_ref()?.directory.services.get(service)?;
        listing.cold_start.map(TimeSpan::as_millis)
    }

    /// The same, by a route.
    pub fn cold_start_ms_of(&self, route: &str) -> Option<u64> {
        self.cold_start_ms(&parse_route(route)?.0)
    }

    fn has_local(&self, runtime: Runtime) -> bool {
        self.local.values().any(|local| local.runtime == runtime)
    }

    fn has_containers(&self) -> bool {
        self.has_local(Runtime::Container) || !self.kept.is_empty()
    }

    fn has_processes(&self) -> bool {
        self.has_local(Runtime::Process) || (self.kept_loopback && !self.kept.is_empty())
    }

    /// Whether containers here need somebody who knows names.
    pub fn needs_names(&self) -> bool {
        (self.has_containers() && self.dns.is_some()) || !self.loopback_ports().is_empty()
    }

    /// The ports that public endpoints have, or will have, on all addresses of this host.
    fn public_ports(&self) -> BTreeSet<(Transport, u16)> {
        let ingress = self.ingress();
        let services = self.services().into_iter();
        let doors = services.flat_map(|(key, endpoints)| {
            let endpoints = endpoints.iter();
            endpoints.flat_map(|endpoint| Door::all(&key.deployment, endpoint, self.web))
        });
        let everywhere = doors.filter(|door| door.addr(ingress).ip().is_unspecified());
        everywhere
            .map(|door| (door.protocol.transport(), door.port))
            .collect()
    }

    /// The endpoints that host programs of this node may call, with the port that each has on the loopback.
    pub fn loopback_ports(&self) -> Vec<LoopbackPort> {
        if !self.has_processes() {
            return Vec::new();
        }
        let public = self.public_ports();
        let mut ports = Vec::new();
        for (key, endpoints) in self.services() {
            let Some(address) = self.book.loopback(key) else {
                continue;
            };
            for endpoint in endpoints {
                let replaced = self.book.port(key, &endpoint.name);
                let port = replaced.unwrap_or(endpoint.port);
                let transport = proxy_protocol(endpoint.protocol).transport();
                ports.push(LoopbackPort {
                    service: key.clone(),
                    endpoint: endpoint.name.clone(),
                    transport,
                    addr: (address, port).into(),
                    is_public: public.contains(&(transport, port)),
                });
            }
        }
        ports
    }

    /// Listeners of the host's network for host programs.
    pub fn loopback_listeners(&self, behind: Behind<'_>) -> Vec<Listener> {
        if !self.has_processes() {
            return Vec::new();
        }
        let services = self.named_services(behind, |known, key| {
            let ports =
                move |endpoint: &Endpoint| known.book.port(key, &endpoint.name).unwrap_or(endpoint.port);
            Some((known.book.loopback(key)?, Box::new(ports)))
        });
        let names = Names {
            services,
            ..Names::default()
        };
        names.listeners()
    }

    /// What the proxy serves to containers in its own network, and who calls.
    pub fn names(&self, behind: Behind<'_>) -> Option<Names> {
        let processes: Vec<ProcessCaller> = self.processes.values().cloned().collect();
        let callers = self.from_bridge.iter().map(|(addr, caller)| Caller {
            addr: *addr,
            deployment: caller.service.deployment.to_string(),
            service: caller.service.service.to_string(),
        });
        let callers: Vec<Caller> = callers.collect();
        let containers = self.has_containers();
        let services = match self.dns.is_some() && containers {
            true => self.services_in_range(behind),
            false => Vec::new(),
        };
        let names = Names {
            dns: self.dns.clone().filter(|_| containers),
            services,
            callers,
            processes,
            incomplete: self.told.is_none(),
            on_demand: self.on_demand(),
        };
        let is_nothing = names.dns.is_none() && names.processes.is_empty() && names.callers.is_empty();
        (!is_nothing).then_some(names)
    }

    /// The services at the addresses that containers call, and their replicas at theirs.
    fn services_in_range(&self, behind: Behind<'_>) -> Vec<NamedService> {
        let mut services = self.services_at_numbers(behind);
        self.name_replicas(&mut services);
        services
    }

    fn services_at_numbers(&self, behind: Behind<'_>) -> Vec<NamedService> {
        self.named_services(behind, |known, key| {
            let address = known.range.address(known.book.number(key)?)?;
            Some((address, Box::new(|endpoint: &Endpoint| endpoint.port)))
        })
    }

    fn named_services<'a>(
        &'a self,
        behind: Behind<'_>,
        at: impl Fn(&'a Self, &'a ServiceKey) -> Option<At<'a>>,
    ) -> Vec<NamedService> {
        let services = self.services().into_iter();
        let named = services.filter_map(|(key, endpoints)| {
            let (address, port) = at(self, key)?;
            let mut seen = BTreeSet::new();
            let mut named = Vec::new();
            for endpoint in endpoints {
                let endpoint = self.named_endpoint(key, endpoint, port(endpoint), behind);
                let transport = endpoint.protocol.transport();
                // Of two that only the host of a request tells apart, the first one has the service's name.
                if seen.insert((transport, endpoint.port, endpoint.path.clone())) {
                    named.push(endpoint);
                }
            }
            Some(NamedService {
                deployment: key.deployment.to_string(),
                service: key.service.to_string(),
                address,
                endpoints: named,
                replicas: Vec::new(),
            })
        });
        named.collect()
    }

    fn named_endpoint(
        &self,
        key: &ServiceKey,
        endpoint: &Endpoint,
        port: u16,
        behind: Behind<'_>,
    ) -> NamedEndpoint {
        let rule = rule_of(&key.deployment, endpoint);
        let protocol = proxy_protocol(endpoint.protocol);
        NamedEndpoint {
            name: endpoint.name.clone(),
            protocol,
            port,
            expose: rule.expose,
            allow: rule.allow,
            path: endpoint
                .path
                .clone()
                .filter(|_| protocol == crate::proxy::Protocol::Http),
            backends: behind(&format!("{}{}", route_prefix(key), endpoint.name)),
            // Callers inside are known by who they are.
            options: EndpointOptions {
                allow_from: Vec::new(),
                ..endpoint.options.clone()
            },
            cold_start_ms: self.cold_start_ms(key),
        }
    }

    /// Where a replica of a deployment reaches the deployment's services.
    pub fn reached_from(&self, deployment: &DeploymentName, runtime: Runtime) -> Vec<Reached> {
        let services = self.services().into_iter();
        let own = services.filter(|(key, _)| key.deployment == *deployment);
        let reached = own.filter_map(|(key, endpoints)| {
            let (address, is_loopback) = match runtime {
                Runtime::Process => (self.book.loopback(key)?, true),
                Runtime::Container => {
                    self.dns.as_ref()?;
                    (self.range.address(self.book.number(key)?)?, false)
                }
            };
            let ports = endpoints.iter().map(|endpoint| {
                let replaced = self.book.port(key, &endpoint.name).filter(|_| is_loopback);
                (endpoint.name.clone(), replaced.unwrap_or(endpoint.port))
            });
            Some(Reached {
                service: key.service.to_string(),
                address,
                ports: ports.collect(),
            })
        });
        reached.collect()
    }
}

/// The share of a canary, for a replica of it.
fn canary_of(listing: &Listing, generation: Generation) -> Option<Canary> {
    let canary = listing.canary.as_ref()?;
    canary.generations.contains(&generation).then_some(Canary {
        number: canary.number,
        share: canary.share,
        of: canary.of,
    })
}

/// The service and the endpoint behind a route's id.
fn parse_route(route: &str) -> Option<(ServiceKey, &str)> {
    let (deployment, rest) = route.split_once('/')?;
    let (service, endpoint) = rest.split_once('/')?;
    let key = ServiceKey {
        deployment: DeploymentName::new(deployment).ok()?,
        service: ServiceName::new(service).ok()?,
    };
    Some((key, endpoint))
}

/// The address of a service in one of the ranges, and the port there of each of its endpoints.
type At<'a> = (Ipv4Addr, Box<dyn Fn(&Endpoint) -> u16 + 'a>);

/// A port on the loopback that stands for an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopbackPort {
    pub service: ServiceKey,
    pub endpoint: String,
    pub transport: Transport,
    pub addr: SocketAddr,
    /// A public endpoint has the port on every address of this host: it cannot be had, though nobody may listen there yet.
    pub is_public: bool,
}

mod mesh;
mod on_demand;
mod replicas;
#[cfg(test)]
mod tests;
