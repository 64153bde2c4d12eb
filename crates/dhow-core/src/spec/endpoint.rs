//! Where a service is reached, and by whom.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
}

impl Endpoint {
    pub fn is_public(&self) -> bool {
        self.expose == Expose::Public
    }

    /// Whether requests for both cannot arrive at one port: HTTP is told apart by host and path, nothing else is.
    pub fn clashes_with(&self, other: &Self) -> bool {
        let is_datagram = |endpoint: &Self| endpoint.protocol == Protocol::Udp;
        let is_http = |endpoint: &Self| matches!(endpoint.protocol, Protocol::Http | Protocol::Websocket);
        let same_port = self.port == other.port && is_datagram(self) == is_datagram(other);
        let shares = is_http(self) && is_http(other);
        same_port && (!shares || (self.host == other.host && self.path == other.path))
    }

    /// Whether servers and agents of a version before callers were told apart would misread it.
    pub(super) fn has_callers(&self) -> bool {
        self.expose == Expose::Cluster || self.allow.is_some()
    }

    /// As such a version reads it: narrower, never wider.
    pub(super) fn without_callers(&self) -> Self {
        let expose = match self.expose {
            Expose::Internal | Expose::Cluster => Expose::Internal,
            Expose::Public => Expose::Public,
        };
        Self {
            expose,
            allow: None,
            ..self.clone()
        }
    }

    /// The port inside the replica: `port` unless the spec says otherwise.
    pub fn target_port(&self) -> u16 {
        self.target_port.unwrap_or(self.port)
    }

    /// `scheme://localhost:port`, as status shows it.
    pub fn address(&self) -> String {
        format!("{}://localhost:{}", self.protocol.scheme(), self.port)
    }
}
