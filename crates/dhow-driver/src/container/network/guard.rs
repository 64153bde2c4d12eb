//! Keeps containers from speaking with another's address: rules of the bridge that let each of its ports send with the
//! two addresses that belong to the port, IPv4 and hardware, and nothing else. IPv6 has no addresses here and is dropped.
//!
//! A port is named after its number and its addresses follow from the number, so that they are known beforehand:
//! the rules are written once, and no start of a container waits for a tool.

use std::fmt::Write;
use std::path::Path;

use super::Addresses;
use super::bridge::Settings;
use super::mac::Mac;
use super::outgoing::run;
use super::ports::{self, EarlierPort};

/// Puts the rules in force, in one transaction. `proxy` is the number of the port that may send with any address:
/// service addresses are behind it. Blocks, for some tens of milliseconds, once per daemon.
pub(super) fn watch(
    settings: &Settings,
    proxy: u32,
    pins: &Path,
    addresses: &Addresses,
) -> Result<(), String> {
    let earlier = ports::settle(settings, pins, addresses)?;
    run("nft", &["-f", "-"], Some(&rules(settings, proxy, &earlier))).map_err(|why| format!("nft: {why}"))
}

/// Takes the rules away; none is fine.
pub(super) fn unwatch(bridge: &str) {
    let _ = run("nft", &["delete", "table", "bridge", bridge], None);
    let _ = run("nft", &["delete", "table", "inet", bridge], None);
}

fn rules(settings: &Settings, proxy: u32, earlier: &[EarlierPort]) -> String {
    let (bridge, subnet, gateway) = (&settings.name, settings.subnet, settings.subnet.gateway());
    let ports = format!("{}*", settings.device_prefix());
    let proxy_port = settings.device_name(proxy);
    let mut members = String::new();
    let usual = (0..subnet.count()).map(|number| (number, settings.mac(number)));
    let earlier = earlier.iter().map(|port| (port.number, port.mac));
    for (number, mac) in usual.chain(earlier).filter(|(number, _)| *number != proxy) {
        member(&mut members, settings, number, mac);
    }
    // What the host sends back into the bridge for one container came from another one, by the host's address. Frames to
    // certain addresses of bridges themselves pass the bridge's rules by, and would reach the host as if its end of a
    // pair were a network of its own.
    format!(
        "table bridge {bridge} {{}}\ndelete table bridge {bridge}\ntable bridge {bridge} {{\n\
         set members {{\ntype ifname . ether_addr . ipv4_addr\nelements = {{ {members} }}\n}}\n\
         chain from {{ type filter hook prerouting priority -350; policy accept;\n\
         iifname != \"{ports}\" accept\n\
         iifname \"{proxy_port}\" accept\n\
         iifname . ether saddr . ip saddr @members accept\n\
         iifname . ether saddr . arp saddr ip @members iifname . arp saddr ether . arp saddr ip @members accept\n\
         drop\n}}\n\
         chain back {{ type filter hook output priority 0; policy accept;\n\
         oifname \"{ports}\" ip saddr {subnet} ip saddr != {gateway} drop\n}}\n}}\n\
         table inet {bridge} {{}}\ndelete table inet {bridge}\ntable inet {bridge} {{\n\
         chain ports {{ type filter hook prerouting priority -350; policy accept;\n\
         iifname \"{ports}\" drop\n}}\n}}\n"
    )
}

fn member(members: &mut String, settings: &Settings, number: u32, mac: Mac) {
    let Some(address) = settings.subnet.address(number) else {
        return;
    };
    let comma = if members.is_empty() { "" } else { ", " };
    let device = settings.device_name(number);
    // Writing to a text cannot fail.
    let _ = write!(members, "{comma}\"{device}\" . {mac} . {address}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_but_the_proxys_has_its_addresses() {
        let settings = Settings::of("dhow-0123abcd", "10.88.4.0/29".parse().unwrap());
        let earlier = EarlierPort {
            number: 1,
            mac: Mac([0x9e, 1, 2, 3, 4, 5]),
        };
        let text = rules(&settings, 4, &[earlier]);
        let device = |number| settings.device_name(number);
        for number in 0..4 {
            let address = settings.subnet.address(number).unwrap();
            let member = format!("\"{}\" . {} . {address}", device(number), settings.mac(number));
            assert!(text.contains(&member), "{member}: {text}");
        }
        assert!(
            text.contains(&format!("\"{}\" . 9e:01:02:03:04:05 . 10.88.4.3 }}", device(1))),
            "{text}"
        );
        assert!(!text.contains("10.88.4.6"), "{text}");
        assert!(
            text.contains(&format!("iifname \"{}\" accept", device(4))),
            "{text}"
        );
    }
}
