//! Where a service is reached, and by whom.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::endpoint_options::EndpointOptions;
use crate::acme;
use crate::ids::{DeploymentName, NameError, RoleName, ServiceKey, ServiceName};

/// What is spoken at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Http,
    Https,
    Tcp,
    Udp,
    Websocket,
}

impl Protocol {
    /// The scheme of an endpoint's address.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Websocket => "ws",
        }
    }
}

/// Who may call an endpoint, where `allow` does not name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expose {
    /// Replicas of the same deployment.
    #[default]
    Internal,
    /// Also everybody who reaches a node of the cluster.
    Public,
    /// Replicas of every deployment.
    Cluster,
}

impl Expose {
    pub fn word(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::Public => "public",
            Self::Cluster => "cluster",
        }
    }
}

/// A service that an endpoint lets call it: `service` of the same deployment, or `deployment/service`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    pub deployment: Option<DeploymentName>,
    pub service: ServiceName,
}

impl Allowed {
    /// The service that is meant, for an endpoint of this deployment.
    pub fn key(&self, own: &DeploymentName) -> ServiceKey {
        ServiceKey {
            deployment: self.deployment.as_ref().unwrap_or(own).clone(),
            service: self.service.clone(),
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.deployment {
            Some(deployment) => write!(f, "{deployment}/{}", self.service),
            None => self.service.fmt(f),
        }
    }
}

impl FromStr for Allowed {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (deployment, service) = match text.split_once('/') {
            Some((deployment, service)) => (Some(DeploymentName::new(deployment)?), service),
            None => (None, text),
        };
        let service = ServiceName::new(service)?;
        Ok(Self { deployment, service })
    }
}

impl Serialize for Allowed {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Allowed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A port at which the balancer takes requests for a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<u16>,
    #[serde(default)]
    pub expose: Expose,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_role: Option<RoleName>,
    /// Just these services may call it, instead of those that `expose` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<Allowed>>,
    /// Requests from outside come over TLS, which ends at the balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    #[serde(flatten)]
    pub options: EndpointOptions,
}

/// The ports that a service's image names, as endpoints of its deployment beside those that the service names itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePorts {
    /// Just these services may call them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<Allowed>>,
}

/// Where public endpoints with a `host` are served beside each other: plain and over TLS.
pub const SHARED_HTTP_PORT: u16 = 80;
pub const SHARED_HTTPS_PORT: u16 = 443;

/// The certificate of an endpoint, and what becomes of plain requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// The secret with the certificate chain and its key, as PEM: a person's, or the cluster's own that it orders for the
    /// host, see [`Tls::by_acme`].
    pub secret: String,
    /// Whether plain requests for the same host are sent to HTTPS: they are where nothing is said, else they are
    /// answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<bool>,
}

impl Tls {
    /// The cluster orders a certificate for the host.
    pub fn by_acme(host: &str, redirect: Option<bool>) -> Self {
        Self {
            secret: acme::certificate_of(host),
            redirect,
        }
    }

    pub fn is_by_acme(&self) -> bool {
        acme::host_of(&self.secret).is_some()
    }

    pub fn redirects(&self) -> bool {
        self.redirect.unwrap_or(true)
    }
}

/// How an endpoint takes what arrives at one of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takes {
    /// Connections, as they are.
    Streams,
    Datagrams,
    /// Requests, told apart by host and path.
    Http,
    /// The same over TLS.
    HttpOverTls,
}

impl Takes {
    fn is_datagram(self) -> bool {
        self == Self::Datagrams
    }

    fn is_routed(self) -> bool {
        matches!(self, Self::Http | Self::HttpOverTls)
    }
}

impl Endpoint {
    /// Without anything that may be left out.
    pub fn new(name: impl Into<String>, protocol: Protocol, port: u16) -> Self {
        Self {
            name: name.into(),
            protocol,
            port,
            target_port: None,
            expose: Expose::default(),
            path: None,
            host: None,
            target_role: None,
            allow: None,
            tls: None,
            options: EndpointOptions::default(),
        }
    }

    /// How the replica itself takes what arrives.
    pub fn takes(&self) -> Takes {
        match self.protocol {
            Protocol::Http | Protocol::Websocket => Takes::Http,
            // What the replica encrypts itself is passed on as it is.
            Protocol::Https | Protocol::Tcp => Takes::Streams,
            Protocol::Udp => Takes::Datagrams,
        }
    }

    /// Where it is served to everybody. One with a host shares the ports of the web with others; over TLS it is served
    /// nowhere else, so that nobody gets round it.
    pub fn public_ports(&self) -> Vec<(u16, Takes)> {
        let (own, takes) = (self.port, self.takes());
        match (&self.host, &self.tls) {
            _ if !takes.is_routed() => vec![(own, takes)],
            (None, None) => vec![(own, takes)],
            (None, Some(_)) => vec![(own, Takes::HttpOverTls)],
            (Some(_), None) if own == SHARED_HTTP_PORT => vec![(own, takes)],
            (Some(_), None) => vec![(own, takes), (SHARED_HTTP_PORT, takes)],
            (Some(_), Some(_)) => vec![
                (SHARED_HTTP_PORT, Takes::Http),
                (SHARED_HTTPS_PORT, Takes::HttpOverTls),
            ],
        }
    }

    /// Whether requests for both are told apart by their host or path.
    pub fn is_told_from(&self, other: &Self) -> bool {
        let host = |endpoint: &Self| endpoint.host.as_ref().map(|host| host.to_ascii_lowercase());
        host(self) != host(other) || self.path != other.path
    }

    pub fn is_public(&self) -> bool {
        self.expose == Expose::Public
    }

    /// A port at which requests for both cannot arrive: HTTP is told apart by host and path, nothing else is.
    pub fn clashes_with(&self, other: &Self) -> Option<u16> {
        let theirs = other.public_ports();
        let clash = |(port, takes): &(u16, Takes)| {
            let same = theirs
                .iter()
                .filter(|(other, held)| other == port && held.is_datagram() == takes.is_datagram());
            let shares = |held: Takes| held == *takes && held.is_routed() && self.is_told_from(other);
            same.into_iter().any(|(_, held)| !shares(*held))
        };
        let ports = self.public_ports();
        ports.into_iter().find(clash).map(|(port, _)| port)
    }

    /// Whether servers and agents of a version before callers were told apart would misread it.
    pub(super) fn has_callers(&self) -> bool {
        self.expose == Expose::Cluster
            || self.allow.is_some()
            || self.tls.is_some()
            || !self.options.is_plain()
    }

    /// As such a version reads it: narrower, never wider.
    pub(super) fn without_callers(&self) -> Self {
        let expose = match self.expose {
            Expose::Internal | Expose::Cluster => Expose::Internal,
            // It would be served without TLS, or to everybody.
            Expose::Public if self.tls.is_some() || !self.options.allow_from.is_empty() => Expose::Internal,
            Expose::Public => Expose::Public,
        };
        Self {
            expose,
            allow: None,
            tls: None,
            options: EndpointOptions::default(),
            ..self.clone()
        }
    }

    /// The port inside the replica: `port` unless the spec says otherwise.
    pub fn target_port(&self) -> u16 {
        self.target_port.unwrap_or(self.port)
    }

    /// `scheme://localhost:port`, as status shows it; with TLS that of the host that it is for.
    pub fn address(&self) -> String {
        let Some(_) = &self.tls else {
            return format!("{}://localhost:{}", self.protocol.scheme(), self.port);
        };
        let scheme = match self.protocol {
            Protocol::Websocket => "wss",
            Protocol::Http | Protocol::Https | Protocol::Tcp | Protocol::Udp => "https",
        };
        match &self.host {
            Some(host) => format!("{scheme}://{host}{}", self.path.as_deref().unwrap_or_default()),
            None => format!("{scheme}://localhost:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(port: u16, host: Option<&str>, path: Option<&str>, secure: bool) -> Endpoint {
        Endpoint {
            expose: Expose::Public,
            host: host.map(str::to_owned),
            path: path.map(str::to_owned),
            tls: secure.then(|| Tls {
                secret: "tls".into(),
                redirect: None,
            }),
            ..Endpoint::new("http", Protocol::Http, port)
        }
    }

    #[test]
    fn who_shares_a_port_is_told_apart_by_host_and_path() {
        let shop = http(8080, Some("shop.test"), None, true);
        let tcp = |port| Endpoint::new("sql", Protocol::Tcp, port);
        for (other, clash) in [
            (http(9090, Some("shop.test"), None, true), Some(80)),
            (http(9090, Some("SHOP.test"), None, true), Some(80)),
            (http(9090, Some("shop.test"), None, false), Some(80)),
            (http(9090, Some("shop.test"), Some("/api"), true), None),
            (http(9090, Some("blog.test"), None, true), None),
            // Its own port is not listened on.
            (http(8080, None, None, false), None),
            (http(80, None, None, false), None),
            (http(443, None, None, false), Some(443)),
            (http(443, None, None, true), None),
            (http(80, None, None, true), Some(80)),
            (tcp(443), Some(443)),
            (tcp(8080), None),
            (Endpoint::new("quic", Protocol::Udp, 443), None),
        ] {
            assert_eq!(shop.clashes_with(&other), clash, "{other:?}");
            assert_eq!(other.clashes_with(&shop), clash, "{other:?}");
        }
    }

    #[test]
    fn a_version_that_knows_no_tls_serves_nothing_in_its_place() {
        let shop = http(8080, Some("shop.test"), None, true);
        assert!(shop.has_callers());
        let told = shop.without_callers();
        assert_eq!((told.expose, &told.tls), (Expose::Internal, &None));
        let plain = http(8080, None, None, false);
        assert!(!plain.has_callers());
        assert_eq!(plain.without_callers(), plain);
    }
}
