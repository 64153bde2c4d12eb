//! What the balancer does: listeners, their routes, and the backends behind them. The daemon sends it, the
//! proxy keeps the last one on disk. A table is whole: what it does not name is not served.

mod mesh;
mod names;
mod on_demand;
mod rule;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use dhow_core::spec::{EndpointOptions, IpRange};
use serde::{Deserialize, Serialize};

pub use mesh::{Mesh, MeshPeer, REMOVED_MAX, RelayDuty, RelayedPeer, TICKET_MAX_BYTES, TicketKey};
pub use names::{Caller, Dns, NamedEndpoint, NamedReplica, NamedService, Names, ProcessCaller};
pub use on_demand::{ASLEEP_MAX, OnDemand, WantedService};
pub use rule::{Allowed, EndpointRule, Expose, Peer, Rule};

/// The form of a table. A higher one is refused rather than misread; form 1 has listeners alone, open to everybody.
pub const TABLE_VERSION: u32 = 2;
/// A node's endpoints: each costs a descriptor, and a port of 65,535.
pub const LISTENERS_MAX: usize = 4096;
/// Over all routes: 65,536 × about 100 bytes of JSON is less than a control message may have.
pub const BACKENDS_MAX: usize = 65_536;
/// Ids, hosts and paths: the longest a name of DNS can be, and room for a replica's full name.
pub const TEXT_MAX_BYTES: usize = 512;

/// Everything that a proxy is to serve. The daemon makes it, the proxy keeps the last one on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub version: u32,
    /// The daemon's own count, shown in the status. The last table applied holds, whatever its number.
    pub revision: u64,
    /// In the host's network.
    #[serde(default)]
    pub listeners: Vec<Listener>,
    /// In the proxy's own network, which containers reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Names>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<Mesh>,
    /// Who in front of this node speaks for others.
    #[serde(default, skip_serializing_if = "Trusted::is_nobody")]
    pub trusted: Trusted,
}

/// Proxies in front of this node, by their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trusted {
    /// What they say in `X-Forwarded-For` and its like is believed.
    #[serde(default)]
    pub forwarded: Vec<IpRange>,
    /// Their connections begin with a PROXY header.
    #[serde(default)]
    pub header: Vec<IpRange>,
}

impl Trusted {
    fn is_nobody(&self) -> bool {
        *self == Self::default()
    }
}

/// An address to listen on, the protocol that is spoken there, and its routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    pub addr: SocketAddr,
    pub protocol: Protocol,
    /// Requests come over TLS; an `Http` listener's alone.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tls: bool,
    #[serde(default)]
    pub routes: Vec<Route>,
}

impl Listener {
    /// Whether a connection has somewhere to go. What is not tied to one replica is answered in any case.
    pub fn is_ready(&self) -> bool {
        match self.protocol {
            Protocol::Http | Protocol::Udp => true,
            Protocol::Tcp => {
                let mut backends = self.routes.iter().flat_map(|route| &route.backends);
                self.routes.iter().any(|route| route.asleep) || backends.any(|backend| !backend.draining)
            }
        }
    }
}

/// How a listener treats what arrives. HTTPS is passed through as `Tcp`, WebSocket is `Http`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Tcp,
    Http,
    Udp,
}

/// What the kernel knows a listener as: one socket serves `Tcp` or `Http`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Stream,
    Datagram,
}

impl Protocol {
    pub fn transport(self) -> Transport {
        match self {
            Self::Tcp | Self::Http => Transport::Stream,
            Self::Udp => Transport::Datagram,
        }
    }
}

/// Where requests of one kind go. `Tcp` and `Udp` listeners have exactly one, without host and path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub id: String,
    /// Compared without case and port; `*.` stands for one label; `None` takes every host.
    #[serde(default)]
    pub host: Option<String>,
    /// A prefix of whole segments: `/api` takes `/api` and `/api/x`, not `/apix`.
    #[serde(default)]
    pub path: Option<String>,
    #[serde(default)]
    pub backends: Vec<Backend>,
    #[serde(default)]
    pub who: Rule,
    /// The secret with the certificate that clients of a TLS listener are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Requests are sent to HTTPS at this port instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<u16>,
    /// The secret with the certificate that the cluster orders for the host of a plain listener: whoever it is ordered
    /// from is answered there, and `redirect` counts only once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<String>,
    #[serde(default, skip_serializing_if = "EndpointOptions::is_plain")]
    pub options: EndpointOptions,
    /// Nobody has said for a while who is behind it: a call brings the service back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asleep: bool,
    /// Its service may have no replica: requests wait so long for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_start_ms: Option<u64>,
}

/// A replica behind a route: one address of a replica of this node, or a replica of another node. It has `addr` or
/// `node`, never both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// The replica's name. One replica may stand behind several routes, with several addresses.
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addr: Option<SocketAddr>,
    /// Reached by the proxy of that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u64>,
    /// Gets nothing new; what it has it may finish.
    #[serde(default)]
    pub draining: bool,
    /// It is of a canary, which gets its share of the requests and no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
}

/// Which canary of its service a backend is of, and the share of all of it: so many of so many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    pub number: u32,
    pub share: u32,
    pub of: u32,
}

/// Why a table is refused. Nothing of it is applied then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error(
        "the table has form {found}, this proxy knows forms 1 to {TABLE_VERSION}: use the dhow that wrote it"
    )]
    Version { found: u32 },
    #[error("the table has {found} {what}, at most {max} are possible")]
    TooMany {
        what: &'static str,
        found: usize,
        max: usize,
    },
    #[error("{what} {value:?} is empty or longer than {TEXT_MAX_BYTES} bytes")]
    Text { what: &'static str, value: String },
    #[error("two listeners have the address {addr}")]
    SameAddress { addr: SocketAddr },
    #[error("the address {addr} has no port")]
    NoPort { addr: SocketAddr },
    #[error("the listener {addr} must have exactly one route without host and path, it has {found} routes")]
    OneRoute { addr: SocketAddr, found: usize },
    #[error("the routes of {addr} have the id {id:?} twice")]
    SameRoute { addr: SocketAddr, id: String },
    #[error("the routes {first:?} and {second:?} of {addr} have the same host and path")]
    SameTarget {
        addr: SocketAddr,
        first: String,
        second: String,
    },
    #[error("the path {path:?} of route {route:?} does not begin with a slash")]
    Path { route: String, path: String },
    #[error("the host {host:?} of route {route:?} is no host name: no port, slash or space may stand in it")]
    Host { route: String, host: String },
    #[error("the route {route:?} has the backend {id:?} twice at the same place")]
    SameBackend { route: String, id: String },
    #[error("the backend {id:?} of route {route:?} must have either an address or a node")]
    NoPlace { route: String, id: String },
    #[error("the route {route:?} leads from {addr} back to itself")]
    Loop { route: String, addr: SocketAddr },
    #[error("the routes of {addr} over TLS must have HTTP and a certificate each")]
    Tls { addr: SocketAddr },
    #[error("the table has {id} twice")]
    SameService { id: String },
    #[error("{address} cannot stand for a service: it is no address of a network's own host")]
    NoServiceAddress { address: Ipv4Addr },
    #[error("the address {address} stands for two services")]
    SameServiceAddress { address: Ipv4Addr },
    #[error("two callers have the address {addr}")]
    SameCaller { addr: Ipv4Addr },
    #[error("the name server {addr} would ask itself")]
    UpstreamItself { addr: Ipv4Addr },
    #[error("the node {node} is there twice")]
    SameNode { node: u64 },
}

impl Table {
    pub fn empty() -> Self {
        Self {
            version: TABLE_VERSION,
            revision: 0,
            listeners: Vec::new(),
            names: None,
            mesh: None,
            trusted: Trusted::default(),
        }
    }

    /// Everything that stands behind a route, of the host's listeners and of names.
    pub fn backends(&self) -> impl Iterator<Item = &Backend> {
        let routes = self.listeners.iter().flat_map(|listener| &listener.routes);
        let named = self.names.iter().flat_map(Names::backends);
        routes.flat_map(|route| &route.backends).chain(named)
    }

    /// Whether it can be carried out as it stands; ports that are taken show only when it is applied.
    pub fn check(&self) -> Result<(), TableError> {
        if !(1..=TABLE_VERSION).contains(&self.version) {
            return Err(TableError::Version { found: self.version });
        }
        at_most("listeners", self.listeners.len(), LISTENERS_MAX)?;
        at_most("backends", self.backends().count(), BACKENDS_MAX)?;
        check_listeners(&self.listeners)?;
        if let Some(names) = &self.names {
            names.check()?;
            let listeners = names.listeners();
            at_most("listeners of services", listeners.len(), LISTENERS_MAX)?;
            check_listeners(&listeners)?;
        }
        self.mesh.as_ref().map_or(Ok(()), Mesh::check)
    }
}

/// Listeners of one network.
fn check_listeners(listeners: &[Listener]) -> Result<(), TableError> {
    let mut seen = BTreeSet::new();
    for listener in listeners {
        let addr = listener.addr;
        if addr.port() == 0 {
            return Err(TableError::NoPort { addr });
        }
        if !seen.insert((listener.protocol.transport(), addr)) {
            return Err(TableError::SameAddress { addr });
        }
        listener.check()?;
    }
    Ok(())
}

impl Listener {
    /// One without anything that may be left out.
    pub fn new(addr: SocketAddr, protocol: Protocol, routes: Vec<Route>) -> Self {
        Self {
            addr,
            protocol,
            tls: false,
            routes,
        }
    }

    fn check(&self) -> Result<(), TableError> {
        let addr = self.addr;
        match self.protocol {
            Protocol::Http => {}
            Protocol::Tcp | Protocol::Udp => match self.routes.as_slice() {
                [one] if one.host.is_none() && one.path.is_none() => {}
                others => {
                    let found = others.len();
                    return Err(TableError::OneRoute { addr, found });
                }
            },
        }
        let is_whole = |route: &Route| route.certificate.is_some() && route.redirect.is_none();
        if self.tls && !(self.protocol == Protocol::Http && self.routes.iter().all(is_whole)) {
            return Err(TableError::Tls { addr });
        }
        let (mut ids, mut targets) = (BTreeSet::new(), BTreeMap::new());
        for route in &self.routes {
            route.check(addr)?;
            let id = || route.id.clone();
            if !ids.insert(&route.id) {
                return Err(TableError::SameRoute { addr, id: id() });
            }
            let target = (route.host.as_deref().map(normal_host), &route.path);
            if let Some(first) = targets.insert(target, id()) {
                let second = id();
                return Err(TableError::SameTarget { addr, first, second });
            }
        }
        Ok(())
    }
}

impl Route {
    fn check(&self, listener: SocketAddr) -> Result<(), TableError> {
        let route = || self.id.clone();
        text("the route id", &self.id)?;
        if let Some(path) = &self.path {
            text("the path", path)?;
            if !path.starts_with('/') {
                let path = path.clone();
                return Err(TableError::Path { route: route(), path });
            }
        }
        if let Some(host) = &self.host {
            text("the host", host)?;
            let odd = |c: char| c.is_whitespace() || matches!(c, '/' | '@' | '?' | '#');
            let has_port = host.contains(':') && !host.starts_with('[');
            if host.contains(odd) || has_port {
                let host = host.clone();
                return Err(TableError::Host { route: route(), host });
            }
        }
        let mut seen = BTreeSet::new();
        for backend in &self.backends {
            text("the backend id", &backend.id)?;
            let id = || backend.id.clone();
            match backend.addr {
                Some(addr) if addr.port() == 0 => return Err(TableError::NoPort { addr }),
                Some(addr) if addr == listener => {
                    return Err(TableError::Loop { route: route(), addr });
                }
                Some(_) | None => {}
            }
            if backend.addr.is_some() == backend.node.is_some() {
                return Err(TableError::NoPlace {
                    route: route(),
                    id: id(),
                });
            }
            if !seen.insert((&backend.id, backend.addr, backend.node)) {
                return Err(TableError::SameBackend {
                    route: route(),
                    id: id(),
                });
            }
        }
        Ok(())
    }
}

impl Backend {
    /// The replica's name inside its deployment; the id is `deployment/replica@generation`.
    pub fn replica(&self) -> Option<&str> {
        let (name, _) = self.id.rsplit_once('@')?;
        name.split_once('/').map(|(_, replica)| replica)
    }

    /// A replica of this node.
    pub fn here(id: impl Into<String>, addr: SocketAddr) -> Self {
        Self {
            id: id.into(),
            addr: Some(addr),
            node: None,
            draining: false,
            canary: None,
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// As hosts are compared: lower case, without the dot that ends a full name.
pub fn normal_host(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn at_most(what: &'static str, found: usize, max: usize) -> Result<(), TableError> {
    if found > max {
        return Err(TableError::TooMany { what, found, max });
    }
    Ok(())
}

fn text(what: &'static str, value: &str) -> Result<(), TableError> {
    if value.is_empty() || value.len() > TEXT_MAX_BYTES {
        let value = value.chars().take(64).collect();
        return Err(TableError::Text { what, value });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
