//! A port of this host at which an endpoint is served. Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dhow_core::ids::{DeploymentName, ServiceKey};
use dhow_core::spec::{self, Endpoint, EndpointOptions, SHARED_HTTP_PORT, SHARED_HTTPS_PORT, Takes};

use crate::proxy::{Allowed, EndpointRule, Expose, Listener, Protocol, Route, Rule};

/// Where the public endpoints of this node are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingress {
    pub addr: IpAddr,
    /// Whether this node takes requests from outside at all.
    pub is_open: bool,
}

impl Default for Ingress {
    fn default() -> Self {
        Self {
            addr: Ipv4Addr::UNSPECIFIED.into(),
            is_open: true,
        }
    }
}

/// The ports that public endpoints with a host share on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebPorts {
    pub http: u16,
    pub https: u16,
}

impl Default for WebPorts {
    fn default() -> Self {
        Self {
            http: SHARED_HTTP_PORT,
            https: SHARED_HTTPS_PORT,
        }
    }
}

/// An endpoint that is listened for on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    pub is_public: bool,
    pub port: u16,
    pub protocol: Protocol,
    pub host: Option<String>,
    pub path: Option<String>,
    pub who: Rule,
    /// The secret with the certificate of one that is served over TLS.
    pub certificate: Option<String>,
    /// Where requests are sent instead: the port of HTTPS.
    pub redirect: Option<u16>,
    /// The secret with the certificate that the cluster orders for the host of one that is served without TLS.
    pub ordered: Option<String>,
    pub options: EndpointOptions,
    /// One of the ports that endpoints with a host share. Nobody is let in there but from outside.
    pub is_shared: bool,
}

impl Door {
    /// Every port at which an endpoint is served on this host.
    pub fn all(deployment: &DeploymentName, endpoint: &Endpoint, web: WebPorts) -> Vec<Self> {
        let own = Self::own(deployment, endpoint);
        if !endpoint.is_public() {
            return vec![own];
        }
        let mut doors: Vec<Self> = Vec::new();
        for (port, takes) in endpoint.public_ports() {
            let tls = endpoint.tls.as_ref();
            let is_tls = takes == Takes::HttpOverTls;
            let shared = match (port, &endpoint.host) {
                (SHARED_HTTPS_PORT, Some(_)) if is_tls => Some(web.https),
                (SHARED_HTTP_PORT, Some(_)) if takes == Takes::Http => Some(web.http),
                _ => None,
            };
            let door = Self {
                port: shared.unwrap_or(port),
                certificate: tls.filter(|_| is_tls).map(|tls| tls.secret.clone()),
                redirect: tls.filter(|tls| !is_tls && tls.redirects()).map(|_| web.https),
                ordered: tls
                    .filter(|tls| !is_tls && tls.is_by_acme())
                    .map(|tls| tls.secret.clone()),
                is_shared: shared.is_some(),
                ..own.clone()
            };
            if !doors.iter().any(|known| known.port == door.port) {
                doors.push(door);
            }
        }
        doors
    }

    fn own(deployment: &DeploymentName, endpoint: &Endpoint) -> Self {
        let is_http = proxy_protocol(endpoint.protocol) == Protocol::Http;
        Self {
            is_public: endpoint.is_public(),
            port: endpoint.port,
            protocol: proxy_protocol(endpoint.protocol),
            host: endpoint.host.clone().filter(|_| is_http),
            path: endpoint.path.clone().filter(|_| is_http),
            who: match endpoint.is_public() {
                true => Rule::Anybody,
                false => Rule::Judged(rule_of(deployment, endpoint)),
            },
            certificate: None,
            redirect: None,
            ordered: None,
            options: endpoint.options.clone(),
            is_shared: false,
        }
    }

    /// What stands in a table that an earlier daemon left; none for what serves addresses of services.
    pub fn from_table(listener: &Listener, route: &Route) -> Option<Self> {
        let ip = listener.addr.ip();
        let is_own = ip == IpAddr::V4(Ipv4Addr::LOCALHOST);
        // Requests from outside may be taken at an address of the loopback too.
        let is_public = !ip.is_loopback() || !is_own && !is_of_services(ip);
        (is_public || is_own).then(|| Self {
            is_public,
            port: listener.addr.port(),
            protocol: listener.protocol,
            host: route.host.clone(),
            path: route.path.clone(),
            who: route.who.clone(),
            certificate: route.certificate.clone(),
            redirect: route.redirect,
            ordered: route.ordered.clone(),
            options: route.options.clone(),
            // Whoever opens it anew knows.
            is_shared: false,
        })
    }

    /// Public endpoints are served where the node takes requests from outside, all others for this host alone.
    pub fn addr(&self, ingress: Ingress) -> SocketAddr {
        let ip = match self.is_public && ingress.is_open {
            true => ingress.addr,
            false => Ipv4Addr::LOCALHOST.into(),
        };
        SocketAddr::new(ip, self.port)
    }

    /// Whether its service cannot do without it: plain requests for a host are a kindness beside its own port or TLS.
    pub fn is_needed(&self) -> bool {
        self.is_public && (!self.is_shared || self.certificate.is_some())
    }

    /// Whether the two have one port.
    pub fn same_port(&self, other: &Self) -> bool {
        self.protocol.transport() == other.protocol.transport() && self.port == other.port
    }

    /// Whether both cannot be listened for: HTTP can share a port by host and path, everything else cannot.
    pub fn clashes(&self, other: &Self) -> bool {
        if !self.same_port(other) {
            return false;
        }
        let is_http = self.protocol == Protocol::Http && other.protocol == Protocol::Http;
        let is_alike = self.certificate.is_some() == other.certificate.is_some();
        let shares = self.is_public == other.is_public && is_alike && is_http;
        !shares || (self.host == other.host && self.path == other.path)
    }
}

/// Whether host programs find services there.
fn is_of_services(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if matches!(ip.octets(), [127, 87, ..]))
}

/// How the proxy treats what arrives at an endpoint.
pub fn proxy_protocol(protocol: spec::Protocol) -> Protocol {
    match protocol {
        spec::Protocol::Http | spec::Protocol::Websocket => Protocol::Http,
        // What is encrypted is passed on as it is.
        spec::Protocol::Https | spec::Protocol::Tcp => Protocol::Tcp,
        spec::Protocol::Udp => Protocol::Udp,
    }
}

/// Whom an endpoint lets in, in the words of a table.
pub fn rule_of(deployment: &DeploymentName, endpoint: &Endpoint) -> EndpointRule {
    EndpointRule {
        deployment: deployment.to_string(),
        expose: match endpoint.expose {
            spec::Expose::Internal => Expose::Internal,
            spec::Expose::Cluster => Expose::Cluster,
            spec::Expose::Public => Expose::Public,
        },
        allow: endpoint.allow.as_ref().map(|allow| {
            let named = allow.iter().map(|allowed| allowed.key(deployment));
            named
                .map(|ServiceKey { deployment, service }| Allowed {
                    deployment: deployment.to_string(),
                    service: service.to_string(),
                })
                .collect()
        }),
    }
}
