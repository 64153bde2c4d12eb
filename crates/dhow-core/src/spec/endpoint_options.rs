//! How the balancer treats what arrives at an endpoint, beside where it goes.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::ip_range::IpRange;
use super::units::TimeSpan;

/// What an endpoint may ask of the balancer. In files and JSON these stand beside its other fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointOptions {
    /// The replica does not see the endpoint's `path`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strip_prefix: bool,
    /// From where it is called; nothing said: from everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_from: Vec<IpRange>,
    /// What keeps a client with the same replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<Sticky>,
    /// How long a replica may take until it begins to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_timeout: Option<TimeSpan>,
    /// How long nothing need pass before a connection or an answer is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<TimeSpan>,
    /// The replica is told who calls, before the first byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Each request is noted in the balancer's log.
    #[serde(default, skip_serializing_if = "is_false")]
    pub access_log: bool,
}

/// By what a client is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sticky {
    Cookie,
    Ip,
}

/// The version of the header that says who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyProtocol {
    V1,
    V2,
}

impl EndpointOptions {
    /// Whether nothing is asked for.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Whether somebody at this address may call.
    pub fn admits(&self, from: IpAddr) -> bool {
        self.allow_from.is_empty() || self.allow_from.iter().any(|range| range.contains(from))
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}
