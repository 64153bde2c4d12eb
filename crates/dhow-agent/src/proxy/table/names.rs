//! What a table says of names: services with an address of their own each, who calls from which address, and where
//! questions about other names go. The proxy serves these addresses in its own network namespace.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use dhow_core::spec::EndpointOptions;
use serde::{Deserialize, Serialize};

use super::on_demand::OnDemand;
use super::rule::{EndpointRule, Expose, Rule};
use super::{Allowed, Backend, Listener, Protocol, Route, TableError, at_most, text};

/// A service has an address of `10.87.0.0/16`, less the 16 that are reserved; a tenth of them is plenty for a node.
pub const SERVICES_MAX: usize = 8192;
/// Containers of a node: a bridge of Linux has 1,023 ports.
pub const CALLERS_MAX: usize = 4096;
/// Replicas of process services of a node.
pub const PROCESSES_MAX: usize = 4096;
/// As many as `resolv.conf` has room for, and some for hosts that know more.
pub const UPSTREAM_MAX: usize = 8;
/// Over all services: names such as `db-default-0.db.shop.dhow`.
pub const REPLICAS_MAX: usize = 16_384;

/// The services that are known by name on this node. Without it there are listeners of the host alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// `None`: nobody is answered, and services have only addresses.
    #[serde(default)]
    pub dns: Option<Dns>,
    #[serde(default)]
    pub services: Vec<NamedService>,
    /// The containers of this node.
    #[serde(default)]
    pub callers: Vec<Caller>,
    /// The processes of this node's replicas that share the host's network.
    #[serde(default)]
    pub processes: Vec<ProcessCaller>,
    /// Deployments that are not in `services` may exist nevertheless: no server has said what there is. Names of
    /// theirs are then answered with a failure, not with "there is no such name".
    #[serde(default)]
    pub incomplete: bool,
    /// `None`: every service that may be called is here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_demand: Option<OnDemand>,
}

/// The name server of this node's containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Where it listens, port 53, in the proxy's namespace.
    pub addr: Ipv4Addr,
    /// The host's own name servers, asked in this order for all that is not of the cluster.
    #[serde(default)]
    pub upstream: Vec<SocketAddr>,
    /// What `host.dhow` is: the host as containers reach it.
    pub host: Ipv4Addr,
}

/// A service by its name, with the address that stands for it on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedService {
    pub deployment: String,
    pub service: String,
    /// Of the range that containers have a route to.
    pub address: Ipv4Addr,
    #[serde(default)]
    pub endpoints: Vec<NamedEndpoint>,
    #[serde(default)]
    pub replicas: Vec<NamedReplica>,
}

/// A port of a service's address and what is behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedEndpoint {
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
    pub expose: Expose,
    /// `None`: whoever `expose` lets in.
    #[serde(default)]
    pub allow: Option<Vec<Allowed>>,
    /// Of `http` endpoints alone, which may share a port by it. Hosts do not count here: the name is the service's.
    #[serde(default)]
    pub path: Option<String>,
    #[serde(default)]
    pub backends: Vec<Backend>,
    #[serde(default, skip_serializing_if = "EndpointOptions::is_plain")]
    pub options: EndpointOptions,
    /// As in a [`Route`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_start_ms: Option<u64>,
}

/// One replica by its own name, such as `db-default-0`, with an address of its own. Behind it stand the service's backends
/// of that name, of whatever generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedReplica {
    pub name: String,
    pub address: Ipv4Addr,
}

/// Who has an address of the bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub addr: Ipv4Addr,
    pub deployment: String,
    pub service: String,
}

/// Who a process of this host belongs to. The cgroup tells, and where the kernel does not say it of a socket, the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessCaller {
    pub deployment: String,
    pub service: String,
    /// The inode of its cgroup (v2).
    #[serde(default)]
    pub cgroup: Option<u64>,
    /// Its user, where that is not the daemon's own and not root.
    #[serde(default)]
    pub uid: Option<u32>,
}

impl Names {
    pub fn backends(&self) -> impl Iterator<Item = &Backend> {
        let endpoints = self.services.iter().flat_map(|service| &service.endpoints);
        endpoints.flat_map(|endpoint| &endpoint.backends)
    }

    /// The listeners of the proxy's own namespace.
    pub fn listeners(&self) -> Vec<Listener> {
        let asleep = self
            .on_demand
            .as_ref()
            .map(OnDemand::sleeping)
            .unwrap_or_default();
        let services = self.services.iter();
        let listeners = services.flat_map(|service| {
            let is_asleep = asleep.contains(&(service.deployment.as_str(), service.service.as_str()));
            service.listeners(is_asleep)
        });
        listeners.collect()
    }

    pub(super) fn check(&self) -> Result<(), TableError> {
        at_most("named services", self.services.len(), SERVICES_MAX)?;
        at_most("callers", self.callers.len(), CALLERS_MAX)?;
        at_most("callers of the host", self.processes.len(), PROCESSES_MAX)?;
        let replicas = self.services.iter().map(|service| service.replicas.len());
        at_most("named replicas", replicas.sum(), REPLICAS_MAX)?;
        let mut addresses = Addresses::default();
        if let Some(dns) = &self.dns {
            at_most("name servers", dns.upstream.len(), UPSTREAM_MAX)?;
            addresses.take(dns.addr)?;
            if let Some(upstream) = dns.upstream.iter().find(|upstream| upstream.port() == 0) {
                return Err(TableError::NoPort { addr: *upstream });
            }
            if dns.upstream.iter().any(|upstream| upstream.ip() == dns.addr) {
                return Err(TableError::UpstreamItself { addr: dns.addr });
            }
        }
        let mut known = BTreeSet::new();
        for service in &self.services {
            let (deployment, name) = (service.deployment.as_str(), service.service.as_str());
            text("the deployment", deployment)?;
            text("the service", name)?;
            if !known.insert((deployment, name)) {
                let id = format!("{deployment}/{name}");
                return Err(TableError::SameService { id });
            }
            addresses.take(service.address)?;
            service.check(&mut addresses)?;
        }
        self.on_demand.as_ref().map_or(Ok(()), OnDemand::check)?;
        self.check_callers()
    }

    fn check_callers(&self) -> Result<(), TableError> {
        let mut seen = BTreeSet::new();
        for caller in &self.callers {
            text("the caller's deployment", &caller.deployment)?;
            text("the caller's service", &caller.service)?;
            if !seen.insert(caller.addr) {
                return Err(TableError::SameCaller { addr: caller.addr });
            }
        }
        for process in &self.processes {
            text("the caller's deployment", &process.deployment)?;
            text("the caller's service", &process.service)?;
        }
        Ok(())
    }
}

impl NamedService {
    fn check(&self, addresses: &mut Addresses) -> Result<(), TableError> {
        let mut seen = BTreeSet::new();
        for endpoint in &self.endpoints {
            text("the endpoint", &endpoint.name)?;
            if !seen.insert(&endpoint.name) {
                let id = format!("{}/{}/{}", self.deployment, self.service, endpoint.name);
                return Err(TableError::SameService { id });
            }
        }
        let mut seen = BTreeSet::new();
        for replica in &self.replicas {
            text("the replica", &replica.name)?;
            addresses.take(replica.address)?;
            if !seen.insert(&replica.name) {
                let id = format!("{}/{}", self.deployment, replica.name);
                return Err(TableError::SameService { id });
            }
        }
        Ok(())
    }

    /// One for each port of its address, and the same for each replica that has an address of its own.
    fn listeners(&self, is_asleep: bool) -> Vec<Listener> {
        let mut listeners = self.listeners_at(self.address, None);
        for replica in &self.replicas {
            listeners.extend(self.listeners_at(replica.address, Some(&replica.name)));
        }
        let routes = listeners.iter_mut().flat_map(|listener| &mut listener.routes);
        routes.for_each(|route| route.asleep = is_asleep);
        listeners
    }

    fn listeners_at(&self, address: Ipv4Addr, replica: Option<&str>) -> Vec<Listener> {
        let mut listeners: Vec<Listener> = Vec::new();
        for endpoint in &self.endpoints {
            let addr = SocketAddr::from((address, endpoint.port));
            let route = self.route(endpoint, replica);
            let same = |listener: &&mut Listener| {
                listener.addr == addr
                    && listener.protocol == Protocol::Http
                    && endpoint.protocol == Protocol::Http
            };
            match listeners.iter_mut().find(same) {
                Some(listener) => listener.routes.push(route),
                None => listeners.push(Listener::new(addr, endpoint.protocol, vec![route])),
            }
        }
        listeners
    }

    /// The route of an endpoint, to all of its replicas or to one alone.
    fn route(&self, endpoint: &NamedEndpoint, replica: Option<&str>) -> Route {
        let behind = endpoint.backends.iter();
        let behind = behind.filter(|found| replica.is_none_or(|replica| found.replica() == Some(replica)));
        Route {
            id: format!("{}/{}/{}", self.deployment, self.service, endpoint.name),
            path: endpoint.path.clone(),
            backends: behind.cloned().collect(),
            who: Rule::Judged(EndpointRule {
                deployment: self.deployment.clone(),
                expose: endpoint.expose,
                allow: endpoint.allow.clone(),
            }),
            options: endpoint.options.clone(),
            cold_start_ms: endpoint.cold_start_ms,
            ..Route::default()
        }
    }
}

/// The addresses that a table has given out so far.
#[derive(Default)]
struct Addresses(BTreeSet<Ipv4Addr>);

impl Addresses {
    fn take(&mut self, address: Ipv4Addr) -> Result<(), TableError> {
        let odd = address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || address.is_broadcast()
            || address.is_link_local();
        if odd {
            return Err(TableError::NoServiceAddress { address });
        }
        if !self.0.insert(address) {
            return Err(TableError::SameServiceAddress { address });
        }
        Ok(())
    }
}
