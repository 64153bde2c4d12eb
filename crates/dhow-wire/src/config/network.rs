//! Where the node's proxy listens, and which addresses stand for services on this node.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use dhow_core::directory::REVERSE;
use dhow_core::spec::{ByteSize, IpRange, SHARED_HTTP_PORT, SHARED_HTTPS_PORT};
use serde::{Serialize, Serializer};

use super::values::{self, Wrong};
use crate::deployment::ranges;
use crate::document::{Decoder, Fields, Node, loose_text, port, size};

/// The port at which proxies reach each other where none is configured.
const MESH_PORT: u16 = 3672;

/// The addresses of a service range: a network of IPv4 whose numbers stand for services on this node alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRange {
    base: Ipv4Addr,
    prefix: u8,
}

impl ServiceRange {
    /// Between so many bits: a smaller one has no room for a node's services, a larger one is never used up.
    const PREFIXES: std::ops::RangeInclusive<u8> = 16..=24;

    pub fn base(&self) -> Ipv4Addr {
        self.base
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// How many addresses it has.
    pub fn size(&self) -> u32 {
        1 << (32 - u32::from(self.prefix))
    }

    /// The address of this number; none beyond the range.
    pub fn address(&self, number: u32) -> Option<Ipv4Addr> {
        (number < self.size()).then(|| Ipv4Addr::from(u32::from(self.base) + number))
    }
}

impl Default for ServiceRange {
    fn default() -> Self {
        Self {
            base: Ipv4Addr::new(10, 87, 0, 0),
            prefix: 16,
        }
    }
}

impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl Serialize for ServiceRange {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl FromStr for ServiceRange {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let wrong = |what: String| {
            let hint = "write a private network of 16 to 24 bits, such as `10.87.0.0/16`";
            Err((format!("`{text}` {what}"), hint.to_owned()))
        };
        let parts = text.split_once('/');
        let parts = parts.and_then(|(base, prefix)| Some((base.parse().ok()?, prefix.parse().ok()?)));
        let Some((base, prefix)) = parts else {
            return wrong("is no network of IPv4 addresses".into());
        };
        let (base, prefix): (Ipv4Addr, u8) = (base, prefix);
        if !Self::PREFIXES.contains(&prefix) {
            return wrong(format!("has {prefix} bits"));
        }
        let range = Self { base, prefix };
        if u32::from(base) % range.size() != 0 {
            let first = u32::from(base) - u32::from(base) % range.size();
            let hint = format!("did you mean `{}/{prefix}`?", Ipv4Addr::from(first));
            return Err((
                format!("`{text}` does not begin with the first address of its network"),
                hint,
            ));
        }
        if base.is_loopback() || base.is_multicast() || base.is_link_local() || base.octets()[0] == 0 {
            return wrong("is no network that containers could have a route to".into());
        }
        Ok(range)
    }
}

/// Nodes that share a host have addresses of their own there for their proxies, numbered by the port of the API: no two
/// daemons of a host have the same one.
const SHARED_HOST: [u8; 2] = [127, 86];

/// Where the proxies of other nodes reach a node's, and where that listens for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshAddr {
    pub listen: SocketAddr,
    /// What other nodes are told.
    pub told: SocketAddr,
}

impl MeshAddr {
    /// As configured, on a host that others reach at `reached`, where its API is. None where nobody can reach it.
    pub fn of(configured: Option<SocketAddr>, reached: Option<SocketAddr>) -> Option<Self> {
        let reached = reached.filter(|addr| !addr.ip().is_unspecified());
        let same = |addr| Self {
            listen: addr,
            told: addr,
        };
        match configured {
            Some(addr) if addr.ip().is_unspecified() => Some(Self {
                listen: addr,
                told: SocketAddr::new(reached?.ip(), addr.port()),
            }),
            Some(addr) => Some(same(addr)),
            None => {
                let reached = reached?;
                let ip = match reached.ip() {
                    ip if ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST => {
                        let ([a, b], [c, d]) = (SHARED_HOST, reached.port().to_be_bytes());
                        Ipv4Addr::new(a, b, c, d).into()
                    }
                    ip => ip,
                };
                Some(same(SocketAddr::new(ip, MESH_PORT)))
            }
        }
    }
}

/// What `mesh_addr` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshSetting {
    At(SocketAddr),
    /// No other node can dial this worker: it is called through its servers.
    Reverse,
}

impl MeshSetting {
    pub fn addr(self) -> Option<SocketAddr> {
        match self {
            Self::At(addr) => Some(addr),
            Self::Reverse => None,
        }
    }
}

impl fmt::Display for MeshSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(addr) => write!(f, "{addr}"),
            Self::Reverse => f.write_str(REVERSE),
        }
    }
}

impl Serialize for MeshSetting {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// What a server passes on in a second for workers that nobody can dial, where nothing is said: half of what a link of a
/// gigabit carries, so that its own work has the other half.
const RELAY_LIMIT: ByteSize = ByteSize(64 << 20);

/// The node's network, as configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkConfig {
    /// Addresses that stand for services, for containers of this node.
    pub range: ServiceRange,
    /// Where the proxies of other nodes reach this node's; an unspecified address means all of this host's. See
    /// [`MeshAddr::of`] for what it is where it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh_addr: Option<MeshSetting>,
    /// Of a server: how many bytes it passes on in a second for workers that nobody can dial.
    pub relay_limit: ByteSize,
    /// The address of this host at which public endpoints are served.
    pub ingress_addr: IpAddr,
    /// The ports there that public endpoints with a `host` share.
    pub http_port: u16,
    pub https_port: u16,
    /// Who may say, in `X-Forwarded-For` and its like, whom a request comes from: proxies in front of this node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<IpRange>,
    /// Whose connections to public endpoints begin with a PROXY header.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proxy_protocol_from: Vec<IpRange>,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            range: ServiceRange::default(),
            mesh_addr: None,
            relay_limit: RELAY_LIMIT,
            ingress_addr: Ipv4Addr::UNSPECIFIED.into(),
            http_port: SHARED_HTTP_PORT,
            https_port: SHARED_HTTPS_PORT,
            trusted_proxies: Vec::new(),
            proxy_protocol_from: Vec::new(),
        }
    }
}

impl NetworkConfig {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

pub(super) fn read(decoder: &mut Decoder, node: &Node) -> Option<NetworkConfig> {
    const EXAMPLE: &str = "`{ range: 10.87.0.0/16, mesh_addr: 10.0.0.1:3672, ingress_addr: 0.0.0.0 }`";
    let mut fields = Fields::open(decoder, node, "`network`", EXAMPLE)?;
    fields.elsewhere(&[
        ("mesh", "write `mesh_addr`"),
        ("ingress", "write `ingress_addr`"),
        ("cidr", "write `range`"),
        ("subnet", "write `range`"),
    ]);
    let plain = NetworkConfig::default();
    let network = NetworkConfig {
        range: fields.or("range", plain.range, |decoder, node| {
            with(decoder, node, ServiceRange::from_str)
        }),
        mesh_addr: fields.optional("mesh_addr", |decoder, node| with(decoder, node, mesh_addr)),
        relay_limit: fields.or("relay_limit", plain.relay_limit, relay_limit),
        ingress_addr: fields.or("ingress_addr", plain.ingress_addr, |decoder, node| {
            with(decoder, node, ingress_addr)
        }),
        http_port: fields.or("http_port", plain.http_port, port),
        https_port: fields.or("https_port", plain.https_port, port),
        trusted_proxies: fields.optional("trusted_proxies", ranges).unwrap_or_default(),
        proxy_protocol_from: fields.optional("proxy_protocol_from", ranges).unwrap_or_default(),
    };
    fields.close();
    if network.http_port == network.https_port {
        let message = format!("`http_port` and `https_port` are both {}", network.http_port);
        return decoder.fail(node.span, message, "give one of the two another port");
    }
    Some(network)
}

fn with<T>(decoder: &mut Decoder, node: &Node, rule: impl FnOnce(&str) -> Result<T, Wrong>) -> Option<T> {
    let text = loose_text(decoder, node)?;
    match rule(&text) {
        Ok(value) => Some(value),
        Err((message, hint)) => decoder.fail(node.span, message, hint),
    }
}

fn relay_limit(decoder: &mut Decoder, node: &Node) -> Option<ByteSize> {
    let limit = size(decoder, node)?;
    match limit.0 {
        0 => {
            let hint = "write how many bytes may pass in a second, such as `64Mi`";
            decoder.fail(
                node.span,
                "a server that passes nothing on keeps callers waiting",
                hint,
            )
        }
        _ => Some(limit),
    }
}

/// An address that other nodes can dial, or all of this host's; or that they cannot.
fn mesh_addr(text: &str) -> Result<MeshSetting, Wrong> {
    if text == REVERSE {
        return Ok(MeshSetting::Reverse);
    }
    let addr = values::address(text)?;
    match addr.port() {
        0 => Err((
            format!("`{text}` has no port"),
            format!("write this host's own address, such as `10.0.0.1:{MESH_PORT}`"),
        )),
        _ => Ok(MeshSetting::At(addr)),
    }
}

fn ingress_addr(text: &str) -> Result<IpAddr, Wrong> {
    let hint = "write an IP address of this host without a port, or `0.0.0.0` for all of them";
    text.parse()
        .map_err(|_| (format!("`{text}` is no IP address"), hint.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_a_network_with_room_for_services() {
        let range: ServiceRange = "10.99.4.0/22".parse().unwrap();
        assert_eq!(range.size(), 1024);
        assert_eq!(range.address(1), Some(Ipv4Addr::new(10, 99, 4, 1)));
        assert_eq!(range.address(1023), Some(Ipv4Addr::new(10, 99, 7, 255)));
        assert_eq!(range.address(1024), None);
        assert_eq!(range.to_string(), "10.99.4.0/22");
        for wrong in [
            "10.87.0.0",
            "10.87.0.0/8",
            "10.87.0.0/30",
            "10.87.1.0/16",
            "127.87.0.0/16",
            "224.0.0.0/16",
            "x/16",
            "::/16",
        ] {
            assert!(wrong.parse::<ServiceRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_network_is_read_strictly() {
        let read = |text: &str| crate::parse_config(text, "dhow.yaml");
        let plain = read("data_dir: /var/lib/dhow\n").unwrap();
        assert_eq!(plain.network, NetworkConfig::default());
        let text = "network: { range: 10.99.0.0/20, mesh_addr: 10.0.0.1:4000, ingress_addr: \"::\" }\n";
        let network = read(text).unwrap().network;
        assert_eq!(network.range.size(), 4096);
        assert_eq!(
            network.mesh_addr,
            Some(MeshSetting::At(([10, 0, 0, 1], 4000).into()))
        );
        assert!(network.ingress_addr.is_ipv6());
        let reverse = "cluster: { mode: worker-tier, role: worker, servers: [\"10.0.0.1:3670\"] }\nnetwork: { mesh_addr: reverse, relay_limit: 1Mi }\n";
        let network = read(reverse).unwrap().network;
        assert_eq!(network.mesh_addr, Some(MeshSetting::Reverse));
        assert_eq!(network.relay_limit, ByteSize(1 << 20));
        for wrong in [
            "network: { rang: 10.0.0.0/16 }",
            "network: { mesh_addr: 10.0.0.1:0 }",
            "network: { ingress_addr: 10.0.0.1:80 }",
            "network: { http_port: 0 }",
            "network: { relay_limit: 0 }",
            "network: { mesh_addr: reverse }",
            "network: { http_port: 443 }",
            "network: 10.87.0.0/16",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn others_reach_the_proxy_where_they_reach_the_node() {
        let found = |configured: Option<&str>, reached: Option<&str>| {
            let addr = |text: &str| text.parse().unwrap();
            let found = MeshAddr::of(configured.map(addr), reached.map(addr));
            found.map(|found| (found.listen.to_string(), found.told.to_string()))
        };
        let same = |text: &str| Some((text.to_owned(), text.to_owned()));
        assert_eq!(found(None, Some("10.0.0.1:3669")), same("10.0.0.1:3672"));
        assert_eq!(
            found(Some("10.9.0.1:4000"), Some("10.0.0.1:3669")),
            same("10.9.0.1:4000")
        );
        assert_eq!(
            found(Some("0.0.0.0:4000"), Some("10.0.0.1:3669")),
            Some(("0.0.0.0:4000".into(), "10.0.0.1:4000".into()))
        );
        // Daemons that share a host do not share an address.
        assert_eq!(found(None, Some("127.0.0.1:3669")), same("127.86.14.85:3672"));
        assert_eq!(found(None, Some("127.0.0.1:3670")), same("127.86.14.86:3672"));
        assert_eq!(found(None, Some("[::1]:3670")), same("127.86.14.86:3672"));
        assert_eq!(found(None, Some("127.0.0.2:3669")), same("127.0.0.2:3672"));
        for nowhere in [None, Some("0.0.0.0:3669")] {
            assert_eq!(found(None, nowhere), None);
            assert_eq!(found(Some("0.0.0.0:4000"), nowhere), None);
        }
    }
}
