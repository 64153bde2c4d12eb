//! Where a service is reached.

use serde::{Deserialize, Serialize};

use crate::ids::RoleName;

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

/// Whether an endpoint answers on its node alone or to others too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expose {
    #[default]
    Internal,
    Public,
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
}

impl Endpoint {
    /// The port inside the replica: `port` unless the spec says otherwise.
    pub fn target_port(&self) -> u16 {
        self.target_port.unwrap_or(self.port)
    }

    /// `scheme://localhost:port`, as status shows it.
    pub fn address(&self) -> String {
        format!("{}://localhost:{}", self.protocol.scheme(), self.port)
    }
}
