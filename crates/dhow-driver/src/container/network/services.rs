//! Where services are reached by name: a network namespace of the proxy's own, a port of the bridge like a container,
//! in which every address of the services' range is local. A host's own listeners and firewall have no part in it.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::sys::statfs::{FsType, fstatfs};

use crate::driver::{Cause, error_chain};

use super::bridge::Bridge;
use super::netlink::{HostRoute, Netlink};
use super::{Addresses, Subnet, failed, guard, namespace, no_address};

/// Owns the proxy's address and names its namespace; no replica's id begins with a dot.
pub(super) const OWNER: &str = ".proxy";
/// What the kernel mounts namespaces as.
const NSFS: FsType = FsType(0x6e73_6673);

/// How containers of this host reach services by name, and what the proxy needs for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceNetwork {
    /// The proxy's network namespace, pinned. It outlives the daemon and every proxy.
    pub namespace: PathBuf,
    /// The addresses that are local there.
    pub range: Subnet,
    /// The proxy's own address on the bridge: the way to the range.
    pub address: Ipv4Addr,
    /// The range's first address, where containers ask for names.
    pub dns: Ipv4Addr,
    /// The host as containers reach it.
    pub host: Ipv4Addr,
}

/// Makes it, or finds what an earlier daemon made. Blocks. The error says what an operator can do.
pub(super) fn make(
    bridge: &Bridge,
    range: Subnet,
    pins: &Path,
    addresses: &Addresses,
    mtu: Option<u32>,
    guarded: &OnceLock<u32>,
) -> Result<ServiceNetwork, String> {
    let mut netlink = Netlink::open().map_err(|error| format!("netlink: {error}"))?;
    let routes = netlink
        .routes()
        .map_err(|error| format!("routes cannot be listed: {error}"))?;
    if let Some(route) = overlapping(range, &routes) {
        return Err(format!(
            "the range {range} of services overlaps the host's route {route}: set `network.range` to one that no \
             route leads to"
        ));
    }
    let number = number(bridge, addresses).map_err(|cause| error_chain(&cause))?;
    guard::watch(bridge.settings(), number, pins, addresses).map_err(|why| {
        format!(
            "containers could take each other's addresses, so that nobody could tell who calls: install nftables \
             ({why})"
        )
    })?;
    // From now on the keeper looks after this too.
    let _ = guarded.set(number);
    let pin = pins.join(OWNER);
    let place = ProxyPlace {
        bridge,
        range,
        number,
    };
    place
        .ensure(&mut netlink, &pin, mtu)
        .map_err(|cause| error_chain(&cause))?;
    let address = bridge.subnet().address(number);
    let address = address.ok_or_else(|| error_chain(&no_address(bridge.subnet())))?;
    Ok(ServiceNetwork {
        namespace: pin,
        range,
        address,
        dns: range.gateway(),
        host: bridge.subnet().gateway(),
    })
}

/// The number that the proxy has on the bridge until the host is started anew: containers have a route by it.
fn number(bridge: &Bridge, addresses: &Addresses) -> Result<u32, Cause> {
    match addresses.of(OWNER)?.first() {
        Some(number) => Ok(*number),
        None => addresses.take(OWNER, bridge.subnet()),
    }
}

/// A route of the host into the range. The default route leads everywhere and does not count.
fn overlapping(range: Subnet, routes: &[HostRoute]) -> Option<&HostRoute> {
    let mut routes = routes.iter().filter(|route| route.prefix_length > 0);
    routes.find(|route| range.overlaps(route.destination, route.prefix_length))
}

struct ProxyPlace<'a> {
    bridge: &'a Bridge,
    range: Subnet,
    number: u32,
}

impl ProxyPlace<'_> {
    fn ensure(&self, netlink: &mut Netlink, pin: &Path, mtu: Option<u32>) -> Result<(), Cause> {
        let veth = self.bridge.device_name(self.number);
        let bridge = self.bridge.index()?;
        let found = netlink
            .find_link(&veth)
            .map_err(failed("finding the proxy's device"))?;
        if let Some(device) = found
            && is_namespace(pin)
        {
            // A bridge that was removed and made anew has lost its ports.
            return netlink
                .set_controller(device, bridge)
                .map_err(failed("joining the proxy's device to the bridge"));
        }
        netlink
            .delete_link(&veth)
            .map_err(failed("removing the proxy's device"))?;
        namespace::remove(pin).map_err(Cause::file("removing", pin))?;
        let address = self.bridge.subnet().address(self.number);
        let plan = namespace::Plan {
            veth,
            bridge,
            mac: self.bridge.settings().mac(self.number),
            address: address.ok_or_else(|| no_address(self.bridge.subnet()))?,
            prefix_length: self.bridge.subnet().prefix_length(),
            mtu,
            ways: namespace::Ways::Proxy { range: self.range },
        };
        namespace::make(pin, &plan).map_err(|(doing, source)| {
            // The first failure is the one to tell.
            let _ = namespace::remove(pin);
            Cause::Network {
                doing: format!("{doing} (of the proxy)"),
                source,
            }
        })
    }
}

/// Whether a namespace is mounted there.
fn is_namespace(pin: &Path) -> bool {
    let mounted = File::open(pin).and_then(|file| fstatfs(&file).map_err(io::Error::from));
    mounted.is_ok_and(|found| found.filesystem_type() == NSFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_into_the_range_is_found_and_the_default_route_is_not_one() {
        let route = |destination: &str, prefix_length| HostRoute {
            destination: destination.parse().unwrap(),
            prefix_length,
            device: Some("eth0".into()),
            gateway: Some("192.0.2.1".parse().unwrap()),
        };
        let range: Subnet = "10.87.0.0/16".parse().unwrap();
        let far = [
            route("0.0.0.0", 0),
            route("10.88.0.0", 16),
            route("192.168.0.0", 16),
        ];
        assert!(overlapping(range, &far).is_none());
        for (destination, length, shown) in [
            ("10.0.0.0", 8, "10.0.0.0/8 via 192.0.2.1 dev eth0"),
            ("10.87.3.0", 24, "10.87.3.0/24 via 192.0.2.1 dev eth0"),
        ] {
            let routes = [route("0.0.0.0", 0), route(destination, length)];
            assert_eq!(overlapping(range, &routes).unwrap().to_string(), shown);
        }
    }
}
