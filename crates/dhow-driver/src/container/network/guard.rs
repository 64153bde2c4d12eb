//! Keeps containers from speaking with another's address: rules of the bridge that let each of its ports send with the
//! address that belongs to the port, and nothing else. IPv6 has no addresses here and is dropped.
//!
//! A port is named after its number and an address follows from the number, so that the pairs are known beforehand:
//! the rules are written once, and no start of a container waits for a tool.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::bridge::Settings;
use super::outgoing::run;

/// Puts the rules in force, in one transaction. `proxy` is the number of the port that may send with any address:
/// service addresses are behind it. Blocks, for some tens of milliseconds, once per daemon.
pub(super) fn watch(settings: &Settings, proxy: u32) -> Result<(), String> {
    run("nft", &["-f", "-"], Some(&rules(settings, proxy)))
}

/// Takes the rules away; none is fine.
pub(super) fn unwatch(bridge: &str) {
    let _ = run("nft", &["delete", "table", "bridge", bridge], None);
}

fn rules(settings: &Settings, proxy: u32) -> String {
    let (bridge, subnet, gateway) = (&settings.name, settings.subnet, settings.subnet.gateway());
    let ports = format!("{}*", settings.device_prefix());
    let proxy_port = settings.device_name(proxy);
    let mut pairs = String::new();
    let numbers = (0..subnet.count()).filter(|number| *number != proxy);
    let addresses = numbers.filter_map(|number| Some((number, subnet.address(number)?)));
    for (number, address) in addresses {
        pair(&mut pairs, &settings.device_name(number), address);
    }
    // What the host sends back into the bridge for one container came from another one, by the host's address.
    format!(
        "table bridge {bridge} {{}}\ndelete table bridge {bridge}\ntable bridge {bridge} {{\n\
         set members {{\ntype ifname . ipv4_addr\nelements = {{ {pairs} }}\n}}\n\
         chain from {{ type filter hook prerouting priority -350; policy accept;\n\
         iifname != \"{ports}\" accept\n\
         iifname \"{proxy_port}\" accept\n\
         iifname . ip saddr @members accept\n\
         iifname . arp saddr ip @members accept\n\
         drop\n}}\n\
         chain back {{ type filter hook output priority 0; policy accept;\n\
         oifname \"{ports}\" ip saddr {subnet} ip saddr != {gateway} drop\n}}\n}}\n"
    )
}

fn pair(pairs: &mut String, device: &str, address: Ipv4Addr) {
    let comma = if pairs.is_empty() { "" } else { ", " };
    // Writing to a text cannot fail.
    let _ = write!(pairs, "{comma}\"{device}\" . {address}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_but_the_proxys_has_its_one_address() {
        let settings = Settings::of("dhow-0123abcd", "10.88.4.0/29".parse().unwrap());
        let text = rules(&settings, 4);
        let device = |number| settings.device_name(number);
        assert!(
            text.contains(&format!("\"{}\" . 10.88.4.2, ", device(0))),
            "{text}"
        );
        assert!(
            text.contains(&format!("\"{}\" . 10.88.4.5 }}", device(3))),
            "{text}"
        );
        assert!(!text.contains("10.88.4.6"), "{text}");
        assert!(
            text.contains(&format!("iifname \"{}\" accept", device(4))),
            "{text}"
        );
    }
}
